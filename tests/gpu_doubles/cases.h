/* What the programs of cases launch, and how they look at the driver that computes nothing.
 *
 * There are two variants of two images each and more, over the same struct: "aligned" wants an address that is a multiple of
 * 16 and n up to 1024, "any" takes everything. Their images' data is their id, which the driver's log shows.
 */
#ifndef CASES_H
#define CASES_H

#include "double.h"
#include "internal.h"

#include <dlfcn.h>

static size_t failures;

static void check(bool holds, const char *what, int line)
{
    if (!holds) {
        const struct kiln_error *error = kiln_last_error();
        printf("line %d: %s does not hold; last error %d, %s: %s\n", line, what, error->status, error->call, error->detail);
        failures++;
    }
}

#define CHECK(condition) check((condition), #condition, __LINE__)
#define FAILS(status, call) check((call) == (status), #call " == " #status, __LINE__)
#define SAYS(text) check(strstr(kiln_last_error()->detail, text) != NULL, "the detail says " #text, __LINE__)

/* -- what is launched */

struct args {
    void *x;
    int32_t n;
    int32_t rows; /* a launch input */
};

static const struct kiln_argument with_promise[] = {
    { "x", "*fp32", 0, 8, 16, true, false },
    { "n", "i32", 8, 4, 0, false, false },
    { "rows", "i32", 12, 4, 0, false, true },
};
static const struct kiln_argument without_promise[] = {
    { "x", "*fp32", 0, 8, 0, true, false },
    { "n", "i32", 8, 4, 0, false, false },
    { "rows", "i32", 12, 4, 0, false, true },
};
static const struct kiln_parameter parameters[] = {
    { "x", "void *", KILN_ROLE_USER, 0, 8, 16 },
    { "n", "int32_t", KILN_ROLE_USER, 8, 4, 0 },
    { "global_scratch", "void *", KILN_ROLE_GLOBAL_SCRATCH, 16, 8, 0 },
    { "profile_scratch", "void *", KILN_ROLE_PROFILE_SCRATCH, 24, 8, 0 },
};

#define IMAGE(name, built_for, of_kind) \
    { .id = name "@" built_for, .variant = name, .target = built_for, .entry = "entry", .kind = of_kind, \
        .data = name "@" built_for, .size = sizeof name "@" built_for - 1, .parameters = parameters, .parameter_count = 4, \
        .parameter_bytes = 32, .threads = 128, .cluster = { 1, 1, 1 }, .shared_dynamic = 16 }

static struct kiln_image aligned_80 = IMAGE("aligned", "sm_80", KILN_KIND_CUBIN);
static struct kiln_image aligned_90a = IMAGE("aligned", "sm_90a", KILN_KIND_CUBIN);
static struct kiln_image aligned_ptx = IMAGE("aligned", "compute_80", KILN_KIND_PTX);
static struct kiln_image aligned_942 = IMAGE("aligned", "gfx942", KILN_KIND_HSACO);
static struct kiln_image any_80 = IMAGE("any", "sm_80", KILN_KIND_CUBIN);
static struct kiln_image any_90a = IMAGE("any", "sm_90a", KILN_KIND_CUBIN);

static const struct kiln_image *const aligned_images[] = { &aligned_80, &aligned_90a, &aligned_ptx, &aligned_942 };
static const struct kiln_image *const any_images[] = { &any_80, &any_90a, NULL };

static enum kiln_grid_status grid_of(const void *args, uint32_t grid[3])
{
    return kiln_grid_from(((const struct args *)args)->rows, 1, 1, grid);
}
static bool up_to_1024(const void *args) { return ((const struct args *)args)->n <= 1024; }
static bool always(const void *args) { return args != NULL; }
static int wants_16(const void *args) { return (uintptr_t)((const struct args *)args)->x % 16 == 0 ? -1 : 0; }
static int wants_nothing(const void *args) { return args != NULL ? -1 : 0; }
static void pack(const void *args, unsigned char *buffer)
{
    memset(buffer, 0, 32);
    memcpy(buffer, args, 12);
}

static struct kiln_cache aligned_cache, any_cache;

static const struct kiln_variant aligned = { "aligned", "aligned", "test", "both", "fp32", "1024", "n <= 1024", with_promise, 3,
    sizeof(struct args), 32, 4, aligned_images, grid_of, up_to_1024, wants_16, pack, &aligned_cache };
static const struct kiln_variant any = { "any", "any", "test", "both", "fp32", "", NULL, without_promise, 3,
    sizeof(struct args), 32, 3, any_images, grid_of, always, wants_nothing, pack, &any_cache };
static const struct kiln_variant *const variants[] = { &aligned, NULL, &any };
static const struct kiln_variant *const only_aligned[] = { &aligned };
static const struct kiln_extent extents[] = { { "n", 8, 4, true }, { "rows", 12, 4, true } };
static struct kiln_tuned both_tuned, narrow_tuned;
static const struct kiln_group both = { "both", variants, 3, true, extents, 2, &both_tuned };
static const struct kiln_group mixed = { "mixed", variants, 3, false, NULL, 0, NULL };
static const struct kiln_group narrow = { "narrow", only_aligned, 1, true, extents, 2, &narrow_tuned };
static const struct kiln_group *const groups[] = { &both, NULL, &mixed };
const struct kiln_catalog kiln_catalog = { variants, 3, groups, 3 };

/* -- the double */

static struct double_state *gpu;
static void (*set_context)(struct double_context *);

static void *symbol(const char *library, const char *name)
{
    void *opened = dlopen(library, RTLD_LAZY);
    void *found = opened != NULL ? dlsym(opened, name) : NULL;
    if (found == NULL) {
        printf("%s\n", dlerror());
        exit(2);
    }
    return found;
}

static void use(const char *library)
{
    void *found = symbol(library, "double_state");
    double_state_function *state;
    memcpy(&state, &found, sizeof found);
    gpu = state();
}

static void use_cuda(void)
{
    static struct double_context context = { 0, false };
    use("libcuda.so.1");
    void *found = symbol("libcuda.so.1", "cuCtxSetCurrent");
    memcpy(&set_context, &found, sizeof found);
    set_context(&context);
}

/* What the driver was asked since the last look. */
static const char *asked(void)
{
    static char seen[DOUBLE_LOG];
    pthread_mutex_lock(&gpu->lock);
    memcpy(seen, gpu->log, gpu->log_bytes);
    seen[gpu->log_bytes] = '\0';
    gpu->log_bytes = 0;
    pthread_mutex_unlock(&gpu->lock);
    return seen;
}

static bool is_asked(const char *expected)
{
    const char *got = asked();
    if (strcmp(got, expected) != 0) {
        printf("the driver was asked\n%sin place of\n%s", got, expected);
    }
    return strcmp(got, expected) == 0;
}

static size_t count(const char *text, const char *word)
{
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        found++;
    }
    return found;
}

static struct args good(void)
{
    const struct args args = { (void *)0x7000, 1000, 4 };
    return args;
}

#define STREAM ((struct CUstream_st *)0x51)
#define PACKED "[0070000000000000e803000000000000" "00000000000000000000000000000000]\n"
#define PLAIN " on 0 grid 4,1,1 block 128,1,1 shared 16 stream 0x51 " PACKED

#endif
