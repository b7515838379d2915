/* Finds images: by place, by name, by group. Whoever calls one of these links every image that the registry names. */
#include "internal.h"

#include <string.h>

#ifndef KILN_DISABLED

static bool is_in_group(const struct kiln_image *image, const char *group, const char *target)
{
    return image != NULL && strcmp(kiln_image_group(image), group) == 0
        && (target == NULL || strcmp(kiln_image_target(image), target) == 0);
}

size_t kiln_image_count(void)
{
    if (kiln_registry.complete) {
        return kiln_registry.slots;
    }
    size_t count = 0;
    for (size_t slot = 0; slot < kiln_registry.slots; slot++) {
        count += kiln_registry.images[slot] != NULL;
    }
    return count;
}

const struct kiln_image *kiln_image_at(size_t index)
{
    if (kiln_registry.complete) {
        return index < kiln_registry.slots ? kiln_registry.images[index] : NULL;
    }
    for (size_t slot = 0; slot < kiln_registry.slots; slot++) {
        const struct kiln_image *image = kiln_registry.images[slot];
        if (image != NULL && index-- == 0) {
            return image;
        }
    }
    return NULL;
}

const struct kiln_image *kiln_image_find(const char *variant, const char *target)
{
    if (variant == NULL || target == NULL) {
        return NULL;
    }
    for (size_t slot = 0; slot < kiln_registry.slots; slot++) {
        const struct kiln_image *image = kiln_registry.images[slot];
        if (image != NULL && strcmp(kiln_image_variant(image), variant) == 0
            && strcmp(kiln_image_target(image), target) == 0) {
            return image;
        }
    }
    return NULL;
}

const struct kiln_image *kiln_group_next(const char *group, const char *target, const struct kiln_image *previous)
{
    if (group == NULL) {
        return NULL;
    }
    bool reached = previous == NULL;
    for (size_t slot = 0; slot < kiln_registry.slots; slot++) {
        const struct kiln_image *image = kiln_registry.images[slot];
        if (reached && is_in_group(image, group, target)) {
            return image;
        }
        reached = reached || kiln_is_same_image(image, previous);
    }
    return NULL;
}

#endif
