/* Only starts, with many variants of one image each beside the library's runtime.
 *
 * Their records stand in for the library's own, and are written as those are: records.h is made by gpu_starts.py.
 */
#include "internal.h"

static KERNELS_USED const unsigned char data[8192] = { 127 };

static KERNELS_USED enum kernels_grid_status grid(const void *args, uint32_t extents[3])
{
    return args != NULL ? KERNELS_GRID_EMPTY : kernels_grid_from(1, 1, 1, extents);
}
static KERNELS_USED bool selects(const void *args) { return args != NULL; }
static KERNELS_USED int broken(const void *args) { return args != NULL ? -1 : 0; }
static KERNELS_USED void pack(const void *args, unsigned char *buffer) { buffer[0] = args != NULL; }

#include "records.h"

static const struct kernels_group *const groups[] = { &group };

const struct kernels_registry kernels_registry = { images, COUNT, true };
const struct kernels_catalog kernels_catalog = { variants, COUNT, groups, 1 };

int main(void)
{
    const bool is_whole = kernels_variant_count() == COUNT && kernels_image_count() == COUNT;
    return is_whole && kernels_image_data(images[0]) == data ? 0 : 1;
}
