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

/* Records are blocks without pointers. These are filled before main, as C has no constants for what they hold. */
struct texts {
    size_t used;
    char bytes[192];
};

struct image_block {
    struct kiln_image record;
    struct kiln_parameter parameters[4];
    struct texts texts;
};

struct variant_block {
    struct kiln_variant record;
    struct kiln_argument arguments[3];
    struct texts texts;
};

struct group_block {
    struct kiln_group record;
    struct kiln_extent extents[20];
    struct texts texts;
};

/* Where a text lies then, from a struct before it in the same block. */
static uint32_t add_text(struct texts *texts, const void *from, const char *text)
{
    char *at = texts->bytes + texts->used;
    texts->used += strlen(text) + 1;
    if (texts->used > sizeof texts->bytes) {
        exit(3);
    }
    memcpy(at, text, strlen(text) + 1);
    return (uint32_t)(at - (const char *)from);
}

/* How far something is from a record. */
#define DISTANCE(record, thing) ((int32_t)((intptr_t)(thing) - (intptr_t)(record)))

static void add_parameter(struct image_block *block, const char *name, const char *type, enum kiln_role role, uint32_t offset,
    uint32_t size, uint32_t promise)
{
    struct kiln_parameter *made = &block->parameters[block->record.parameter_count++];
    const struct kiln_parameter values = { add_text(&block->texts, made, name), add_text(&block->texts, made, type), role,
        offset, size, promise };
    *made = values;
}

static void make_image(struct image_block *block, const char *variant, const char *target, enum kiln_kind kind)
{
    struct kiln_image *made = &block->record;
    char id[64];
    snprintf(id, sizeof id, "%s@%s", variant, target);
    made->anchor_at = DISTANCE(made, &kiln_anchor);
    made->id_at = add_text(&block->texts, made, id);
    made->variant_at = add_text(&block->texts, made, variant);
    made->target_at = add_text(&block->texts, made, target);
    made->entry_at = add_text(&block->texts, made, "entry");
    made->data_at = made->id_at;
    made->size = strlen(id);
    made->kind = kind;
    made->parameters_at = offsetof(struct image_block, parameters);
    add_parameter(block, "x", "void *", KILN_ROLE_USER, 0, 8, 16);
    add_parameter(block, "n", "int32_t", KILN_ROLE_USER, 8, 4, 0);
    add_parameter(block, "global_scratch", "void *", KILN_ROLE_GLOBAL_SCRATCH, 16, 8, 0);
    add_parameter(block, "profile_scratch", "void *", KILN_ROLE_PROFILE_SCRATCH, 24, 8, 0);
    made->parameter_bytes = 32;
    made->threads = 128;
    made->cluster[0] = made->cluster[1] = made->cluster[2] = 1;
    made->shared_dynamic = 16;
}

static void add_argument(struct variant_block *block, const char *name, const char *type, uint32_t offset, uint32_t size,
    uint32_t promise, bool is_input)
{
    struct kiln_argument *made = &block->arguments[block->record.argument_count++];
    const struct kiln_argument values = { add_text(&block->texts, made, name), add_text(&block->texts, made, type), offset,
        size, promise, type[0] == '*', is_input };
    *made = values;
}

#define MAKE_VARIANT(block, name, group, block_name, images, cache, grid, selects, broken) \
    make_variant(block, name, group, block_name, images, sizeof images / sizeof *images, cache, (uintptr_t)grid, \
        (uintptr_t)selects, (uintptr_t)broken)

static void pack(const void *args, unsigned char *buffer)
{
    memset(buffer, 0, 32);
    memcpy(buffer, args, 12);
}

/* Without its arguments. */
static void make_variant(struct variant_block *block, const char *name, const char *group, const char *block_name,
    const struct kiln_image *const *images, size_t image_count, struct kiln_cache *cache, uintptr_t grid, uintptr_t selects,
    uintptr_t broken)
{
    struct kiln_variant *made = &block->record;
    made->anchor_at = DISTANCE(made, &kiln_anchor);
    made->cache_at = DISTANCE(made, cache);
    made->images_at = DISTANCE(made, images);
    made->grid_at = DISTANCE(made, grid);
    made->selects_at = DISTANCE(made, selects);
    made->broken_at = DISTANCE(made, broken);
    made->pack_at = DISTANCE(made, (uintptr_t)pack);
    made->args_bytes = 16;
    made->buffer_bytes = 32;
    made->image_count = (uint32_t)image_count;
    made->arguments_at = offsetof(struct variant_block, arguments);
    made->name_at = made->base_at = add_text(&block->texts, made, name);
    made->kernel_at = add_text(&block->texts, made, "test");
    made->group_at = add_text(&block->texts, made, group);
    made->dtype_at = add_text(&block->texts, made, "fp32");
    made->block_at = add_text(&block->texts, made, block_name);
}

static void add_extent(struct group_block *block, const char *name, uint32_t offset, uint32_t size, bool is_signed)
{
    struct kiln_extent *made = &block->extents[block->record.extent_count++];
    const struct kiln_extent values = { add_text(&block->texts, made, name), offset, size, is_signed };
    *made = values;
}

/* Without its extents. A group with no place for choices is not uniform. */
static void make_group(struct group_block *block, const char *name, const struct kiln_variant *const *variants, uint32_t count,
    struct kiln_tuned *tuned)
{
    struct kiln_group *made = &block->record;
    made->anchor_at = DISTANCE(made, &kiln_anchor);
    made->variants_at = DISTANCE(made, variants);
    made->tuned_at = tuned != NULL ? DISTANCE(made, tuned) : 0;
    made->variant_count = count;
    made->is_uniform = tuned != NULL;
    made->extents_at = offsetof(struct group_block, extents);
    made->name_at = add_text(&block->texts, made, name);
}

static struct image_block aligned_80_block, aligned_90a_block, aligned_ptx_block, aligned_942_block, any_80_block, any_90a_block;
static struct variant_block aligned_block, any_block;
static struct group_block both_block, mixed_block, narrow_block;

#define aligned_80 aligned_80_block.record
#define aligned_90a aligned_90a_block.record
#define aligned_ptx aligned_ptx_block.record
#define aligned_942 aligned_942_block.record
#define any_90a any_90a_block.record
#define aligned aligned_block.record
#define any any_block.record
#define both both_block.record
#define mixed mixed_block.record
#define narrow narrow_block.record

static const struct kiln_image *const aligned_images[] = { &aligned_80, &aligned_90a, &aligned_ptx, &aligned_942 };
static const struct kiln_image *const any_images[] = { &any_80_block.record, &any_90a, NULL };

static enum kiln_grid_status grid_of(const void *args, uint32_t grid[3])
{
    return kiln_grid_from(((const struct args *)args)->rows, 1, 1, grid);
}
static bool up_to_1024(const void *args) { return ((const struct args *)args)->n <= 1024; }
static bool always(const void *args) { return args != NULL; }
static int wants_16(const void *args) { return (uintptr_t)((const struct args *)args)->x % 16 == 0 ? -1 : 0; }
static int wants_nothing(const void *args) { return args != NULL ? -1 : 0; }
static struct kiln_cache aligned_cache, any_cache;
static const struct kiln_variant *const variants[] = { &aligned, NULL, &any };
static const struct kiln_variant *const only_aligned[] = { &aligned };
static struct kiln_tuned both_tuned, narrow_tuned;
static const struct kiln_group *const groups[] = { &both, NULL, &mixed };
const struct kiln_catalog kiln_catalog = { variants, 3, groups, 3 };

__attribute__((constructor)) static void make_records(void)
{
    make_image(&aligned_80_block, "aligned", "sm_80", KILN_KIND_CUBIN);
    make_image(&aligned_90a_block, "aligned", "sm_90a", KILN_KIND_CUBIN);
    make_image(&aligned_ptx_block, "aligned", "compute_80", KILN_KIND_PTX);
    make_image(&aligned_942_block, "aligned", "gfx942", KILN_KIND_HSACO);
    make_image(&any_80_block, "any", "sm_80", KILN_KIND_CUBIN);
    make_image(&any_90a_block, "any", "sm_90a", KILN_KIND_CUBIN);
    MAKE_VARIANT(&aligned_block, "aligned", "both", "1024", aligned_images, &aligned_cache, grid_of, up_to_1024, wants_16);
    aligned.select_at = add_text(&aligned_block.texts, &aligned, "n <= 1024");
    MAKE_VARIANT(&any_block, "any", "both", "", any_images, &any_cache, grid_of, always, wants_nothing);
    add_argument(&aligned_block, "x", "*fp32", 0, 8, 16, false);
    add_argument(&any_block, "x", "*fp32", 0, 8, 0, false);
    for (size_t i = 0; i < 2; i++) {
        struct variant_block *block = i == 0 ? &aligned_block : &any_block;
        add_argument(block, "n", "i32", 8, 4, 0, false);
        add_argument(block, "rows", "i32", 12, 4, 0, true);
    }
    make_group(&both_block, "both", variants, 3, &both_tuned);
    make_group(&narrow_block, "narrow", only_aligned, 1, &narrow_tuned);
    make_group(&mixed_block, "mixed", variants, 3, NULL);
    for (size_t i = 0; i < 2; i++) {
        struct group_block *block = i == 0 ? &both_block : &narrow_block;
        add_extent(block, "n", 8, 4, true);
        add_extent(block, "rows", 12, 4, true);
    }
}

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
