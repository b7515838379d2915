/* Variants and groups by place and by name, and all of them at once. Whoever calls one of these links every image. */
#include "internal.h"

#include <string.h>

#ifndef KILN_DISABLED

/* In an archive of one target, slots of what is not linked are NULL, and do not count. */
static const struct kiln_variant *variant_at(size_t slot)
{
    return kiln_catalog.variants[slot];
}

size_t kiln_variant_count(void)
{
    size_t count = 0;
    for (size_t slot = 0; slot < kiln_catalog.variant_slots; slot++) {
        count += variant_at(slot) != NULL;
    }
    return count;
}

const struct kiln_variant *kiln_variant_at(size_t index)
{
    for (size_t slot = 0; slot < kiln_catalog.variant_slots; slot++) {
        if (variant_at(slot) != NULL && index-- == 0) {
            return variant_at(slot);
        }
    }
    return NULL;
}

const struct kiln_variant *kiln_variant_find(const char *name)
{
    for (size_t slot = 0; name != NULL && slot < kiln_catalog.variant_slots; slot++) {
        if (variant_at(slot) != NULL && strcmp(kiln_variant_name(variant_at(slot)), name) == 0) {
            return variant_at(slot);
        }
    }
    return NULL;
}

size_t kiln_group_count(void)
{
    size_t count = 0;
    for (size_t slot = 0; slot < kiln_catalog.group_slots; slot++) {
        count += kiln_catalog.groups[slot] != NULL;
    }
    return count;
}

const struct kiln_group *kiln_group_at(size_t index)
{
    for (size_t slot = 0; slot < kiln_catalog.group_slots; slot++) {
        if (kiln_catalog.groups[slot] != NULL && index-- == 0) {
            return kiln_catalog.groups[slot];
        }
    }
    return NULL;
}

const struct kiln_group *kiln_group_find(const char *name)
{
    for (size_t slot = 0; name != NULL && slot < kiln_catalog.group_slots; slot++) {
        const struct kiln_group *group = kiln_catalog.groups[slot];
        if (group != NULL && strcmp(kiln_group_name(group), name) == 0) {
            return group;
        }
    }
    return NULL;
}

int kiln_preload_all(void)
{
    int outcome = KILN_ERROR_NO_IMAGE;
    for (size_t slot = 0; slot < kiln_catalog.variant_slots; slot++) {
        const int status = variant_at(slot) != NULL ? kiln_preload(variant_at(slot)) : KILN_ERROR_NO_IMAGE;
        if (status == 0) {
            outcome = 0;
        } else if (status != KILN_ERROR_NO_IMAGE) {
            return status;
        }
    }
    return outcome;
}

#endif
