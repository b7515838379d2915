/* The images of a kernel library: what each one is, how to find it, and how to know that its bytes are whole.
 *
 * Everything here is read-only data and pure functions: no allocation, no printing, no global state, no constructor,
 * and safe from any thread. No CUDA or HIP header is needed. C99 and later, C++11 and later.
 *
 * A record is one block of bytes without a pointer in it, so that a loader has nothing to do for it, however many there
 * are: the struct, then its lists, then its texts. Members whose names end with _at say where something lies; the
 * functions below read them. So records are used where they lie, by pointers: a struct that was copied has lost the rest.
 *
 * Linking: a program that names an image's record pulls that image alone out of the archive. A program that calls
 * one of the lookups below pulls the registry, and with it every image of the archive.
 *
 * An archive of one target, lib<library>_<target>.a, is complete on its own: its registry lists that target's images.
 * Several of them link together without clashes. The registry of the first one then lists whatever images the program
 * has linked, so name each further target's table to the linker, as in
 *     -lkiln_sm_80 -Wl,-u,kiln__sm_90a -lkiln_sm_90a
 * or mention it in the program. Of lib<library>.a nothing has to be named. Take one archive alone whole
 * (--whole-archive), for each holds the runtime.
 *
 * <kiln/kiln_launch.h> launches. Whoever launches otherwise loads its data (cuModuleLoadData, hipModuleLoadData) and gets
 * the function of its entry. Its grid is what the variant's _grid function says (a cluster's blocks come on top: times
 * cluster[0] in x), its block is `threads` by 1 by 1, its dynamic shared memory `shared_dynamic`; where static and dynamic
 * together pass 48 KiB, CUDA wants CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES set first. Parameters are one buffer
 * of `parameter_bytes` that the variant's _pack function writes (CU_LAUNCH_PARAM_BUFFER_POINTER,
 * HIP_LAUNCH_PARAM_BUFFER_POINTER), never as the argument struct itself: launch inputs stand behind the arguments there,
 * where the buffer has scratch pointers. An image that asks for scratch memory gets the address of as many bytes, for
 * each block, at the offset of the parameter with that role.
 */
#ifndef KILN_IMAGE_H
#define KILN_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever a struct below does; kiln_abi_version() says what the archive was compiled with. */
#define KILN_ABI_VERSION 2

/* Copies of records are refused in C++, where an `auto` makes one unseen. */
#ifdef __cplusplus
#define KILN_IN_PLACE(type) \
    type(const type &) = delete; \
    type &operator=(const type &) = delete;
#else
#define KILN_IN_PLACE(type)
#endif

enum kiln_kind {
    KILN_KIND_CUBIN = 1,
    KILN_KIND_PTX = 2,
    KILN_KIND_HSACO = 3
};

/* Who fills a parameter. The scratch pointers are hidden from the kernel's author: they come after the user's
 * parameters, they are always part of the parameter buffer, and they may be null where the image asks for 0 bytes. */
enum kiln_role {
    KILN_ROLE_USER = 1,
    KILN_ROLE_GLOBAL_SCRATCH = 2,
    KILN_ROLE_PROFILE_SCRATCH = 3
};

/* One parameter, as the image lays it out. */
struct kiln_parameter {
    KILN_IN_PLACE(kiln_parameter)
    uint32_t name_at; /* kiln_parameter_name() */
    uint32_t type_at; /* kiln_parameter_type() */
    enum kiln_role role;
    uint32_t offset; /* in the parameter buffer, bytes */
    uint32_t size;   /* bytes */
    uint32_t promise; /* the caller guarantees that address or value is a multiple of this; 0 where nothing is promised */
};

/* A value that is compiled in: of a constexpr parameter, or 1 of an argument whose promise is to be 1. */
struct kiln_constant {
    KILN_IN_PLACE(kiln_constant)
    int64_t value; /* of an integer or a truth value; 0 for anything else */
    uint32_t name_at; /* kiln_constant_name() */
    uint32_t text_at; /* kiln_constant_text() */
};

/* One variant built for one target. Sizes are bytes. What a launch reads comes first: it is one line of a cache. */
struct kiln_image {
    KILN_IN_PLACE(kiln_image)
    uint64_t global_scratch_bytes; /* for each block of the grid and each block of its cluster */
    uint64_t profile_scratch_bytes;
    uint32_t threads; /* of a block */
    uint32_t shared_static;
    uint32_t shared_dynamic; /* to be given at launch */
    uint32_t parameter_bytes;
    uint32_t cluster[3];
    enum kiln_kind kind;
    bool cooperative;
    bool pdl; /* programmatic dependent launch */
    int32_t anchor_at;
    uint32_t parameter_count;
    uint32_t parameters_at; /* kiln_image_parameters() */
    int64_t data_at; /* kiln_image_data() */
    size_t size;     /* of the data */
    uint8_t sha256[32]; /* of those size bytes */
    uint32_t global_scratch_align;
    uint32_t profile_scratch_align;
    uint32_t warps; /* as launched: threads / warp_size */
    uint32_t warps_requested; /* num_warps; warp specialisation makes it differ */
    uint32_t warp_size;
    int32_t registers; /* of 32 bits, a thread; -1 in this and the next three where it is not known: of a PTX, say */
    int32_t scalar_registers;
    int32_t spills; /* bytes a thread spills to memory, each instruction counted once */
    int32_t stack;
    uint32_t constant_count;
    uint32_t constants_at; /* kiln_image_constants() */
    uint32_t id_at;        /* kiln_image_id(), and so on */
    uint32_t kernel_at;
    uint32_t variant_at;
    uint32_t group_at;
    uint32_t dtype_at;
    uint32_t block_at;
    uint32_t target_at;
    uint32_t entry_at;
    uint32_t ptx_isa_at; /* 0: none */
    uint32_t grid_at[3];
    uint32_t select_at; /* 0: none */
};

/* What lies in the block of a record, from the start of the struct that says where. */
static inline const void *kiln_within(const void *start, uint32_t at)
{
    return (const char *)start + at;
}

/* The same of a text that may be missing. */
static inline const char *kiln_text_within(const void *start, uint32_t at)
{
    return at != 0 ? (const char *)start + at : NULL;
}

/* "softmax_fp16_2048@sm_90a" */
static inline const char *kiln_image_id(const struct kiln_image *image)
{
    return (const char *)kiln_within(image, image->id_at);
}

static inline const char *kiln_image_kernel(const struct kiln_image *image)
{
    return (const char *)kiln_within(image, image->kernel_at);
}

static inline const char *kiln_image_variant(const struct kiln_image *image)
{
    return (const char *)kiln_within(image, image->variant_at);
}

static inline const char *kiln_image_group(const struct kiln_image *image)
{
    return (const char *)kiln_within(image, image->group_at);
}

static inline const char *kiln_image_dtype(const struct kiln_image *image)
{
    return (const char *)kiln_within(image, image->dtype_at);
}

/* As it stands in names, "2048"; empty for a kernel without blocks. */
static inline const char *kiln_image_block(const struct kiln_image *image)
{
    return (const char *)kiln_within(image, image->block_at);
}

static inline const char *kiln_image_target(const struct kiln_image *image)
{
    return (const char *)kiln_within(image, image->target_at);
}

/* The symbol to ask the driver for. */
static inline const char *kiln_image_entry(const struct kiln_image *image)
{
    return (const char *)kiln_within(image, image->entry_at);
}

/* "8.0", of PTX only: it decides the oldest driver; else NULL. */
static inline const char *kiln_image_ptx_isa(const struct kiln_image *image)
{
    return kiln_text_within(image, image->ptx_isa_at);
}

/* An expression over arguments, constants and launch inputs; dimension 0 is x. */
static inline const char *kiln_image_grid(const struct kiln_image *image, uint32_t dimension)
{
    return dimension < 3 ? (const char *)kiln_within(image, image->grid_at[dimension]) : NULL;
}

/* When the variant can serve a call; NULL: always. */
static inline const char *kiln_image_select(const struct kiln_image *image)
{
    return kiln_text_within(image, image->select_at);
}

/* All of the parameter buffer, in order: parameter_count of them. */
static inline const struct kiln_parameter *kiln_image_parameters(const struct kiln_image *image)
{
    return (const struct kiln_parameter *)kiln_within(image, image->parameters_at);
}

/* constant_count of them. */
static inline const struct kiln_constant *kiln_image_constants(const struct kiln_image *image)
{
    return (const struct kiln_constant *)kiln_within(image, image->constants_at);
}

/* In the kernel's source; a hidden parameter is named after its role. */
static inline const char *kiln_parameter_name(const struct kiln_parameter *parameter)
{
    return (const char *)kiln_within(parameter, parameter->name_at);
}

/* As C has it: "void *" (a device address), "int32_t", "float"; fp16, bf16, fp8 are bits. */
static inline const char *kiln_parameter_type(const struct kiln_parameter *parameter)
{
    return (const char *)kiln_within(parameter, parameter->type_at);
}

static inline const char *kiln_constant_name(const struct kiln_constant *constant)
{
    return (const char *)kiln_within(constant, constant->name_at);
}

/* As Python has it: 2048, True, 1e-05, None, (1, 2); the name of a dtype or a function. */
static inline const char *kiln_constant_text(const struct kiln_constant *constant)
{
    return (const char *)kiln_within(constant, constant->text_at);
}

/* The image's bytes: read-only, aligned to 64, or to 8 within a fat binary. PTX is followed by one NUL, which size leaves
 * out. */
const void *kiln_image_data(const struct kiln_image *image);

/* The images of one target, in order of declaration. */
struct kiln_table {
    const char *target;
    const struct kiln_image *const *images;
    size_t count;
};

uint32_t kiln_abi_version(void);

/* Whether the image's bytes have the digest that its record gives: about 4 ms a MiB. */
bool kiln_image_verify(const struct kiln_image *image);

/* How many images there are. */
size_t kiln_image_count(void);

/* The image at a place in the order of declaration; NULL from kiln_image_count() on. */
const struct kiln_image *kiln_image_at(size_t index);

/* The image of a variant for a target, both as in kernels.yaml; NULL when there is none. */
const struct kiln_image *kiln_image_find(const char *variant, const char *target);

/* The images of a group in order of declaration: the first when previous is NULL, NULL after the last.
 * With a target, only its images; with NULL, those of every target. */
const struct kiln_image *kiln_group_next(const char *group, const char *target, const struct kiln_image *previous);

/* What a grid comes to. */
enum kiln_grid_status {
    KILN_GRID_OK = 0,
    KILN_GRID_EMPTY = 1,       /* a dimension is 0: there is nothing to do, and a driver refuses such a launch */
    KILN_GRID_OUT_OF_RANGE = 2 /* a dimension is negative, x is above 2^31 - 1, y or z is above 65535, or what is computed for
                                  one divides by zero or leaves 64 bits */
};

/* Checks a grid against the limits that CUDA and HIP share. `grid` is written unless it is out of range. */
static inline enum kiln_grid_status kiln_grid_from(int64_t x, int64_t y, int64_t z, uint32_t grid[3])
{
    if (x < 0 || y < 0 || z < 0 || x > INT32_MAX || y > 65535 || z > 65535) {
        return KILN_GRID_OUT_OF_RANGE;
    }
    grid[0] = (uint32_t)x;
    grid[1] = (uint32_t)y;
    grid[2] = (uint32_t)z;
    return x == 0 || y == 0 || z == 0 ? KILN_GRID_EMPTY : KILN_GRID_OK;
}

#ifdef __cplusplus
}
#endif

#endif
