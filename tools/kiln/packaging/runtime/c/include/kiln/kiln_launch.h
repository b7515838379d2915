/* Launching by variant and by group, with the driver that the program has: no CUDA or HIP header is needed.
 *
 * A launch looks at its arguments first: whether `select` holds, whether what the signature promises holds, and what the
 * grid is. Then it takes the image for the device, loads it at its first use, packs the arguments and asks the driver. It
 * waits for nothing, and allocates nothing once an image is loaded. Everything may be called from any thread.
 *
 * The stream belongs to the context that is current, as cuLaunchKernel wants it. Streams of HIP are cast. NULL is the
 * default stream.
 *
 * Link with -ldl -lpthread. A typed launch pulls in the images of its variant alone, a group's launch those of its group;
 * kiln_variant_find and the like pull in everything.
 */
#ifndef KILN_LAUNCH_H
#define KILN_LAUNCH_H

#include <kiln/kiln_driver.h>
#include <kiln/kiln_image.h>
#include <kiln/kiln_status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The dtypes that kernels are declared with. */
enum kiln_dtype {
    KILN_DTYPE_I1 = 1,
    KILN_DTYPE_I8 = 2,
    KILN_DTYPE_I16 = 3,
    KILN_DTYPE_I32 = 4,
    KILN_DTYPE_I64 = 5,
    KILN_DTYPE_U8 = 6,
    KILN_DTYPE_U16 = 7,
    KILN_DTYPE_U32 = 8,
    KILN_DTYPE_U64 = 9,
    KILN_DTYPE_FP16 = 10,
    KILN_DTYPE_BF16 = 11,
    KILN_DTYPE_FP32 = 12,
    KILN_DTYPE_FP64 = 13,
    KILN_DTYPE_FP8E4NV = 14,
    KILN_DTYPE_FP8E4B8 = 15,
    KILN_DTYPE_FP8E4B15 = 16,
    KILN_DTYPE_FP8E5 = 17,
    KILN_DTYPE_FP8E5B16 = 18
};

/* One member of a variant's argument struct. Sizes are bytes. */
struct kiln_argument {
    KILN_IN_PLACE(kiln_argument)
    uint32_t name_at; /* kiln_argument_name() */
    uint32_t type_at; /* kiln_argument_type() */
    uint32_t offset;  /* in the struct */
    uint32_t size;
    uint32_t promise; /* address or value is a multiple of 16, or the value is 1; 0 where nothing is promised */
    bool is_pointer;
    bool is_input;    /* only grid and select depend on it, and the kernel does not take it */
};

/* A variant: what it takes, and its images. A record like that of an image. */
struct kiln_variant {
    KILN_IN_PLACE(kiln_variant)
    int32_t anchor_at;
    int32_t cache_at;
    int32_t images_at;  /* kiln_variant_images() */
    int32_t grid_at;    /* kiln_variant_grid() */
    int32_t selects_at; /* kiln_variant_selects() */
    int32_t broken_at;  /* kiln_variant_broken() */
    int32_t pack_at;    /* kiln_variant_pack() */
    int32_t bundle_at;  /* kiln_variant_bundle(); 0: none */
    uint32_t args_bytes;   /* of the argument struct */
    uint32_t buffer_bytes; /* of the largest parameter buffer among the images */
    uint32_t image_count;
    uint32_t argument_count;
    uint32_t arguments_at; /* kiln_variant_arguments() */
    uint32_t name_at;      /* kiln_variant_name(), and so on */
    uint32_t base_at;
    uint32_t kernel_at;
    uint32_t group_at;
    uint32_t dtype_at;
    uint32_t block_at;
    uint32_t select_at; /* 0: none */
};

/* An integer in a group's argument struct that grid, select or tensors use. Offset and size are bytes. */
struct kiln_extent {
    KILN_IN_PLACE(kiln_extent)
    uint32_t name_at; /* kiln_extent_name() */
    uint32_t offset;
    uint32_t size;
    bool is_signed;
};

/* Variants that compute the same thing, in order of declaration. A record, too. */
struct kiln_group {
    KILN_IN_PLACE(kiln_group)
    int32_t anchor_at;
    int32_t variants_at; /* kiln_group_variants() */
    int32_t tuned_at;
    uint32_t variant_count;
    uint32_t extent_count; /* 0 where the group is not uniform */
    uint32_t extents_at;   /* kiln_group_extents() */
    uint32_t name_at;      /* kiln_group_name() */
    bool is_uniform; /* all take the same argument struct; only such a group can be launched */
};

/* In the kernel's source, or of the launch input in kernels.yaml. */
static inline const char *kiln_argument_name(const struct kiln_argument *argument)
{
    return (const char *)kiln_within(argument, argument->name_at);
}

/* As a signature has it: "*fp16", "i32". */
static inline const char *kiln_argument_type(const struct kiln_argument *argument)
{
    return (const char *)kiln_within(argument, argument->type_at);
}

/* "softmax_fp16_2048" */
static inline const char *kiln_variant_name(const struct kiln_variant *variant)
{
    return (const char *)kiln_within(variant, variant->name_at);
}

/* The name without what is promised. */
static inline const char *kiln_variant_base(const struct kiln_variant *variant)
{
    return (const char *)kiln_within(variant, variant->base_at);
}

static inline const char *kiln_variant_kernel(const struct kiln_variant *variant)
{
    return (const char *)kiln_within(variant, variant->kernel_at);
}

static inline const char *kiln_variant_group(const struct kiln_variant *variant)
{
    return (const char *)kiln_within(variant, variant->group_at);
}

static inline const char *kiln_variant_dtype(const struct kiln_variant *variant)
{
    return (const char *)kiln_within(variant, variant->dtype_at);
}

static inline const char *kiln_variant_block(const struct kiln_variant *variant)
{
    return (const char *)kiln_within(variant, variant->block_at);
}

/* The expression; NULL: it serves every call. */
static inline const char *kiln_variant_select(const struct kiln_variant *variant)
{
    return kiln_text_within(variant, variant->select_at);
}

/* argument_count of them, in the struct's order. */
static inline const struct kiln_argument *kiln_variant_arguments(const struct kiln_variant *variant)
{
    return (const struct kiln_argument *)kiln_within(variant, variant->arguments_at);
}

static inline const char *kiln_extent_name(const struct kiln_extent *extent)
{
    return (const char *)kiln_within(extent, extent->name_at);
}

static inline const char *kiln_group_name(const struct kiln_group *group)
{
    return (const char *)kiln_within(group, group->name_at);
}

/* extent_count of them, in the struct's order. */
static inline const struct kiln_extent *kiln_group_extents(const struct kiln_group *group)
{
    return (const struct kiln_extent *)kiln_within(group, group->extents_at);
}

/* image_count of them, in order; NULL for one whose archive the program has not linked. */
const struct kiln_image *const *kiln_variant_images(const struct kiln_variant *variant);

/* The fat binary with all of the variant's images for NVIDIA, from which a driver chooses; NULL where they are separate.
 * Launches load it in place of an image, but for one that they are given, by options or by KILN_TARGET. */
const void *kiln_variant_bundle(const struct kiln_variant *variant);

/* variant_count of them, in order; NULL for one whose archive the program has not linked. */
const struct kiln_variant *const *kiln_group_variants(const struct kiln_group *group);

/* What a variant computes of its argument struct: how many blocks to launch, whether its select holds, the first argument
 * whose promise does not hold (-1: all hold), and the parameter buffer, of buffer_bytes. */
enum kiln_grid_status kiln_variant_grid(const struct kiln_variant *variant, const void *args, uint32_t grid[3]);
bool kiln_variant_selects(const struct kiln_variant *variant, const void *args);
int kiln_variant_broken(const struct kiln_variant *variant, const void *args);
void kiln_variant_pack(const struct kiln_variant *variant, const void *args, unsigned char *buffer);

/* Whether a launch asks the driver of each pointer if it is memory that the device can reach: a microsecond or so each. */
enum kiln_checks {
    KILN_CHECKS_NONE = 0,
    KILN_CHECKS_POINTERS = 1,        /* null is refused too */
    KILN_CHECKS_POINTERS_OR_NULL = 2 /* for kernels that take null where they use nothing */
};

/* What a launch can be told besides its arguments. Zero is the default of every member but the first. */
struct kiln_launch_options {
    size_t struct_bytes; /* sizeof(struct kiln_launch_options) */
    struct CUstream_st *stream;
    const uint32_t *grid;           /* three extents in place of what the grid's expressions give */
    const struct kiln_image *image; /* one of the variant's, in place of the one for the device */
    enum kiln_checks checks;        /* of this launch, besides those of all */
};

/* What a group's launch would do. */
struct kiln_choice {
    const struct kiln_variant *variant;
    const struct kiln_image *image; /* NULL for an empty grid; of a fat binary that is not loaded, the one to expect */
    uint32_t grid[3]; /* with a 0 in it, a launch does nothing */
};

/* What the driver has of an image, for those who launch themselves. */
struct kiln_handles {
    const struct kiln_image *image;
    void *module;   /* CUlibrary, CUmodule or hipModule_t */
    void *function; /* CUfunction (or a CUkernel, which launches take for one), hipFunction_t */
    bool is_bundled; /* the module is the variant's fat binary; else the image alone */
};

/* Launches a variant; NULL for options is the default of each. */
int kiln_launch(const struct kiln_variant *variant, const void *args, const struct kiln_launch_options *options);

/* The same, with a stream alone. */
int kiln_launch_variant(const struct kiln_variant *variant, const void *args, struct CUstream_st *stream);

/* Launches the first of some variants with the same argument struct that can serve the call. */
int kiln_launch_first(
    const struct kiln_variant *const *variants, size_t count, const void *args, struct CUstream_st *stream);

/* Launches the first variant of a group that can serve the call: whose select and promises hold, whose grid is in range,
 * and which has an image that the device takes. With the tuner on, the one that was chosen comes first: kiln_tuner.h. */
int kiln_launch_group(const struct kiln_group *group, const void *args, struct CUstream_st *stream);

/* Only tells which that is. Nothing is loaded. */
int kiln_choose(const struct kiln_group *group, const void *args, struct kiln_choice *choice);

/* Loads a variant's image for the current device and context; before a stream is captured, and where the first launch is
 * not to take longer than others. Again for each further device, and for each further context. */
int kiln_preload(const struct kiln_variant *variant);

/* The same for the variants of a group that the device has images for; an error when there is none. */
int kiln_preload_group(const struct kiln_group *group);

/* The same for all variants that the program has linked, which are then all that there are. */
int kiln_preload_all(void);

/* Loads it where it is not, and tells the driver's handles, which hold until kiln_unload(). */
int kiln_load(const struct kiln_variant *variant, struct kiln_handles *handles);

/* Unloads everything. No launch may run in another thread meanwhile; the next one loads anew. With drivers of CUDA before
 * 12.0, call it before a context is destroyed that was launched in. */
int kiln_unload(void);

/* Says for each image of a variant whether a device takes it and why not, a line each, and which one is used; -1 is the
 * current device. What does not fit in size bytes is left out. */
int kiln_explain_choice(const struct kiln_variant *variant, int32_t device, char *text, size_t size);

/* The checks of all launches of the process; none by default. */
void kiln_set_checks(enum kiln_checks checks);

/* What a launch hook is told of a launch. */
struct kiln_launch_event {
    const struct kiln_variant *variant;
    const struct kiln_image *image; /* of a fat binary that is not loaded, the one to expect */
    uint32_t grid[3];
    int32_t device;
    struct CUstream_st *stream;
};

/* Who is told of launches: for a profiler's ranges, for counters, for logs. The launching thread calls before and after
 * around what it asks the driver, at a first use also to load the image; either may be NULL. A call that is refused, or
 * whose grid is empty, is not told of. The hook may call the library, but launch nothing. */
struct kiln_launch_hook {
    void *user;
    void (*before)(void *user, const struct kiln_launch_event *event);
    void (*after)(void *user, const struct kiln_launch_event *event, int status);
};

/* The hook is not copied, and has to stay; NULL for none. Not while launches run. */
void kiln_set_launch_hook(const struct kiln_launch_hook *hook);

/* Who gives scratch memory to kernels that want it. Both functions are called by the launching thread around the launch:
 * release comes right behind it, while the kernel may not have begun, so memory has to go back in the stream's order, as
 * with cudaFreeAsync. allocate returns a device address that is a multiple of align, or NULL. */
struct kiln_scratch_allocator {
    void *user;
    void *(*allocate)(void *user, size_t bytes, size_t align, struct CUstream_st *stream, int32_t device);
    void (*release)(void *user, void *address, struct CUstream_st *stream, int32_t device);
};

/* The allocator is not copied, and has to stay; NULL for none. Not while launches run. */
void kiln_set_scratch_allocator(const struct kiln_scratch_allocator *allocator);

/* Variants and groups: by place, by name; NULL when there is none. */
size_t kiln_variant_count(void);
const struct kiln_variant *kiln_variant_at(size_t index);
const struct kiln_variant *kiln_variant_find(const char *name);
size_t kiln_group_count(void);
const struct kiln_group *kiln_group_at(size_t index);
const struct kiln_group *kiln_group_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
