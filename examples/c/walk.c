/* Walks every image of the library, checks its digest and prints a line for each:
 *
 *     softmax_fp16_2048@sm_90a cubin 10648 4be0...9c1f ok
 *
 * Exits with 1 when an image is damaged or misaligned, or when there is none. Needs no GPU and no driver.
 *
 * Build and run, from the top of the repository and after `doit`:
 *
 *     cc -std=c99 -I build/include examples/c/walk.c build/lib/libkernels.a -o build/walk && build/walk
 */
#include <kernels/kernels.h>

#include <inttypes.h>
#include <stdio.h>

static const char *kind_name(enum kernels_kind kind)
{
    switch (kind) {
    case KERNELS_KIND_CUBIN:
        return "cubin";
    case KERNELS_KIND_PTX:
        return "ptx";
    case KERNELS_KIND_HSACO:
        return "hsaco";
    }
    return "unknown";
}

int main(void)
{
    if (kernels_abi_version() != KERNELS_ABI_VERSION) {
        fprintf(stderr, "the headers and the archive are of two different builds\n");
        return 1;
    }
    size_t bad = 0;
    for (size_t i = 0; i < kernels_image_count(); i++) {
        const struct kernels_image *image = kernels_image_at(i);
        const bool is_whole = kernels_image_verify(image);
        const bool is_aligned = (uintptr_t)kernels_image_data(image) % 64 == 0;
        printf("%s %s %zu ", kernels_image_id(image), kind_name(image->kind), image->size);
        for (size_t byte = 0; byte < sizeof image->sha256; byte++) {
            printf("%02" PRIx8, image->sha256[byte]);
        }
        printf(" %s\n", !is_whole ? "DAMAGED" : !is_aligned ? "MISALIGNED" : "ok");
        bad += !is_whole || !is_aligned;
    }
    return bad != 0 || kernels_image_count() == 0;
}
