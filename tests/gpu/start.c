/* Only starts, with many variants of one image each beside the library's runtime; with -DFEW, with 10 of them, else 1,000.
 *
 * Their tables stand in for the library's own, and have the size and the pointers that those of softmax_fp16_1024 have.
 */
#include "internal.h"

#define TEN(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7) X(n##8) X(n##9)
#ifdef FEW
#define ALL(X) TEN(X, 1)
enum { COUNT = 10 };
#else
#define HUNDRED(X, n) \
    TEN(X, n##0) TEN(X, n##1) TEN(X, n##2) TEN(X, n##3) TEN(X, n##4) TEN(X, n##5) TEN(X, n##6) TEN(X, n##7) TEN(X, n##8) TEN(X, n##9)
#define ALL(X) \
    HUNDRED(X, 10) HUNDRED(X, 11) HUNDRED(X, 12) HUNDRED(X, 13) HUNDRED(X, 14) HUNDRED(X, 15) HUNDRED(X, 16) HUNDRED(X, 17) \
    HUNDRED(X, 18) HUNDRED(X, 19)
enum { COUNT = 1000 };
#endif

static const unsigned char data[8192] = { 127 };

static enum kernels_grid_status grid(const void *args, uint32_t extents[3])
{
    return args != NULL ? KERNELS_GRID_EMPTY : kernels_grid_from(1, 1, 1, extents);
}
static bool selects(const void *args) { return args != NULL; }
static int broken(const void *args) { return args != NULL ? -1 : 0; }
static void pack(const void *args, unsigned char *buffer) { buffer[0] = args != NULL; }

#define PARAMETER(name, role, offset, size) { name, "void *", KERNELS_ROLE_##role, offset, size, 0 }
#define ARGUMENT(name, offset, size) { name, "*fp16", offset, size, 0, true, false }

#define VARIANT(n) \
    static const struct kernels_parameter parameters_##n[] = { PARAMETER("output_ptr", USER, 0, 8), \
        PARAMETER("input_ptr", USER, 8, 8), PARAMETER("input_row_stride", USER, 16, 4), \
        PARAMETER("output_row_stride", USER, 20, 4), PARAMETER("n_cols", USER, 24, 4), \
        PARAMETER("global_scratch", GLOBAL_SCRATCH, 32, 8), PARAMETER("profile_scratch", PROFILE_SCRATCH, 40, 8) }; \
    static const struct kernels_constant constants_##n[] = { { "BLOCK_SIZE", "1024", 1024 } }; \
    static const struct kernels_image image_##n = { .id = "softmax_" #n "@sm_90a", .kernel = "softmax", \
        .variant = "softmax_" #n, .group = "softmax", .dtype = "fp16", .block = #n, .target = "sm_90a", \
        .entry = "softmax_kernel", .kind = KERNELS_KIND_CUBIN, .data = data, .size = sizeof data, \
        .parameters = parameters_##n, .parameter_count = 7, .parameter_bytes = 48, .constants = constants_##n, \
        .constant_count = 1, .threads = 128, .warps = 4, .warp_size = 32, .cluster = { 1, 1, 1 }, \
        .grid = { "n_rows", "1", "1" }, .select = "n_cols <= BLOCK_SIZE" }; \
    static const struct kernels_image *const images_##n[] = { &image_##n }; \
    static const struct kernels_argument arguments_##n[] = { ARGUMENT("output_ptr", 0, 8), ARGUMENT("input_ptr", 8, 8), \
        ARGUMENT("input_row_stride", 16, 4), ARGUMENT("output_row_stride", 20, 4), ARGUMENT("n_cols", 24, 4), \
        ARGUMENT("n_rows", 28, 4) }; \
    static struct kernels_cache cache_##n; \
    static const struct kernels_variant variant_##n = { .name = "softmax_" #n, .base = "softmax_" #n, .kernel = "softmax", \
        .group = "softmax", .dtype = "fp16", .block = #n, .select = "n_cols <= BLOCK_SIZE", .arguments = arguments_##n, \
        .argument_count = 6, .args_bytes = 32, .buffer_bytes = 48, .image_count = 1, .images = images_##n, .grid = grid, \
        .selects = selects, .broken = broken, .pack = pack, .cache = &cache_##n };

ALL(VARIANT)

#define IMAGE_OF(n) &image_##n,
#define VARIANT_OF(n) &variant_##n,

static const struct kernels_image *const images[] = { ALL(IMAGE_OF) };
static const struct kernels_variant *const variants[] = { ALL(VARIANT_OF) };
static const struct kernels_group group = { "softmax", variants, COUNT, true, NULL, 0, NULL };
static const struct kernels_group *const groups[] = { &group };

const struct kernels_registry kernels_registry = { images, COUNT, true };
const struct kernels_catalog kernels_catalog = { variants, COUNT, groups, 1 };

int main(void)
{
    return kernels_variant_count() == COUNT && kernels_image_count() == COUNT ? 0 : 1;
}
