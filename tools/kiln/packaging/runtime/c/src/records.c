/* What lies outside of a record: its image's bytes, its functions, its lists of other records.
 *
 * A record says where by distances, which need no loader. A program that takes a record from a shared library may have a
 * copy of its whole block (a copy relocation), from which the distances would lead astray: so each record has the distance
 * of the anchor here from itself, of which no program has a copy.
 */
#include "internal.h"

const unsigned char kiln_anchor = 0;

const void *kiln_image_data(const struct kiln_image *image)
{
    return kiln_data_of(image);
}

const struct kiln_image *const *kiln_variant_images(const struct kiln_variant *variant)
{
    return kiln_images_of(variant);
}

const void *kiln_variant_bundle(const struct kiln_variant *variant)
{
    return kiln_bundle_of(variant);
}

const struct kiln_variant *const *kiln_group_variants(const struct kiln_group *group)
{
    return kiln_variants_of(group);
}

enum kiln_grid_status kiln_variant_grid(const struct kiln_variant *variant, const void *args, uint32_t grid[3])
{
    return kiln_call_grid(variant, args, grid);
}

bool kiln_variant_selects(const struct kiln_variant *variant, const void *args)
{
    return kiln_call_selects(variant, args);
}

int kiln_variant_broken(const struct kiln_variant *variant, const void *args)
{
    return kiln_call_broken(variant, args);
}

void kiln_variant_pack(const struct kiln_variant *variant, const void *args, unsigned char *buffer)
{
    kiln_call_pack(variant, args, buffer);
}
