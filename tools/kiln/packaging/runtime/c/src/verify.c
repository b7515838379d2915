/* What can be asked of one image or of the library without the registry. */
#include "internal.h"

#include <string.h>

uint32_t kiln_abi_version(void)
{
    return KILN_ABI_VERSION;
}

bool kiln_image_verify(const struct kiln_image *image)
{
    if (image == NULL || kiln_data_of(image) == NULL) {
        return false;
    }
    uint8_t digest[sizeof image->sha256];
    kiln_sha256((const unsigned char *)kiln_data_of(image), image->size, digest);
    return memcmp(digest, image->sha256, sizeof digest) == 0;
}
