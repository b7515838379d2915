/* What the library's own objects share and nobody else sees. */
#ifndef KILN_INTERNAL_H
#define KILN_INTERNAL_H

#include <kiln/kiln_image.h>

/* Hidden: a shared library that takes in the archive does not export it. */
#define KILN_INTERNAL __attribute__((visibility("hidden")))

/* Every image that lookups find, in order of declaration. In an archive of one target the images of other targets
 * are weak references, and NULL where the program has not linked them; such a registry is not complete. */
struct kiln_registry {
    const struct kiln_image *const *images;
    size_t slots;
    bool complete;
};

extern KILN_INTERNAL const struct kiln_registry kiln_registry;

KILN_INTERNAL void kiln_sha256(const unsigned char *data, size_t size, uint8_t digest[32]);

#endif
