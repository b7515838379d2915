/* What the library's own objects share and nobody else sees. */
#ifndef KILN_INTERNAL_H
#define KILN_INTERNAL_H

#include <kiln/kiln_image.h>
#include <kiln/kiln_launch.h>

#include <string.h>

/* Hidden: a shared library that takes in the archive does not export it. */
#define KILN_INTERNAL __attribute__((visibility("hidden")))

/* What assembly alone refers to, and a compiler would leave out. */
#define KILN_USED __attribute__((used))

/* Every image that lookups find, in order of declaration. In an archive of one target the images of other targets
 * are weak references, and NULL where the program has not linked them; such a registry is not complete. */
struct kiln_registry {
    const struct kiln_image *const *images;
    size_t slots;
    bool complete;
};

extern KILN_INTERNAL const struct kiln_registry kiln_registry;

/* Every variant and every group, as the registry has the images. */
struct kiln_catalog {
    const struct kiln_variant *const *variants;
    size_t variant_slots;
    const struct kiln_group *const *groups;
    size_t group_slots;
};

extern KILN_INTERNAL const struct kiln_catalog kiln_catalog;

/* Where distances in records are measured from: see records.c. */
extern KILN_INTERNAL const unsigned char kiln_anchor;

/* What lies outside of a record at the distance `at` from it, by its distance to the anchor; 0 for none. */
static inline uintptr_t kiln_outside(int32_t anchor_at, int64_t at)
{
    const uintptr_t record = (uintptr_t)&kiln_anchor - (uintptr_t)(intptr_t)anchor_at;
    return at != 0 ? record + (uintptr_t)at : 0;
}

static inline const void *kiln_data_of(const struct kiln_image *image)
{
    return (const void *)kiln_outside(image->anchor_at, image->data_at);
}

static inline const struct kiln_image *const *kiln_images_of(const struct kiln_variant *variant)
{
    return (const struct kiln_image *const *)kiln_outside(variant->anchor_at, variant->images_at);
}

/* NULL where the images are separate, or the program has not linked the fat binary. */
static inline const void *kiln_bundle_of(const struct kiln_variant *variant)
{
    const void *const *bundle = (const void *const *)kiln_outside(variant->anchor_at, variant->bundle_at);
    return bundle != NULL ? *bundle : NULL;
}

static inline const struct kiln_variant *const *kiln_variants_of(const struct kiln_group *group)
{
    return (const struct kiln_variant *const *)kiln_outside(group->anchor_at, group->variants_at);
}

static inline struct kiln_cache *kiln_cache_of(const struct kiln_variant *variant)
{
    return (struct kiln_cache *)kiln_outside(variant->anchor_at, variant->cache_at);
}

/* NULL for a group that the tuner does not know. */
static inline struct kiln_tuned *kiln_tuned_of(const struct kiln_group *group)
{
    return (struct kiln_tuned *)kiln_outside(group->anchor_at, group->tuned_at);
}

/* A variant's own functions. */
typedef enum kiln_grid_status kiln_grid_function(const void *args, uint32_t grid[3]);
typedef bool kiln_selects_function(const void *args);
typedef int kiln_broken_function(const void *args);
typedef void kiln_pack_function(const void *args, unsigned char *buffer);

static inline enum kiln_grid_status kiln_call_grid(const struct kiln_variant *variant, const void *args, uint32_t grid[3])
{
    return ((kiln_grid_function *)kiln_outside(variant->anchor_at, variant->grid_at))(args, grid);
}

static inline bool kiln_call_selects(const struct kiln_variant *variant, const void *args)
{
    return ((kiln_selects_function *)kiln_outside(variant->anchor_at, variant->selects_at))(args);
}

static inline int kiln_call_broken(const struct kiln_variant *variant, const void *args)
{
    return ((kiln_broken_function *)kiln_outside(variant->anchor_at, variant->broken_at))(args);
}

static inline void kiln_call_pack(const struct kiln_variant *variant, const void *args, unsigned char *buffer)
{
    ((kiln_pack_function *)kiln_outside(variant->anchor_at, variant->pack_at))(args, buffer);
}

/* Whether two are one image, be either a program's copy. */
static inline bool kiln_is_same_image(const struct kiln_image *one, const struct kiln_image *other)
{
    return one == other || (one != NULL && other != NULL && memcmp(one, other, sizeof *one) == 0);
}

KILN_INTERNAL void kiln_sha256(const unsigned char *data, size_t size, uint8_t digest[32]);

/* An image of a variant for one device, and for one scope where modules serve no more than that. Written under the lock;
 * `function` comes last, and whoever finds it finds the rest. */
struct kiln_slot {
    struct kiln_slot *next;
    int32_t device;
    uint64_t scope;
    const struct kiln_image *image; /* NULL: there is none for the device */
    const void *data; /* what is loaded: a fat binary that holds it, or the image's own; written until it is loaded */
    void *module;
    void *function; /* NULL: not loaded yet */
    bool owns_module; /* else another slot of the variant does */
    uint32_t global_scratch_offset; /* in the parameter buffer; where the image wants that memory */
    uint32_t profile_scratch_offset;
};

/* What is known and loaded of a variant. Lists only grow, at their heads, until all is unloaded. */
struct kiln_cache {
    struct kiln_slot *chosen; /* the image for the device */
    struct kiln_slot *given;  /* images that a caller asked for */
    struct kiln_cache *next;  /* of all caches that have slots */
    bool is_listed;
};

struct kiln_bucket;

enum { KILN_TUNED_LISTS = 32 };

/* What launches know of choices for a group: lists of buckets by a hash. */
struct kiln_tuned {
    struct kiln_bucket *buckets[KILN_TUNED_LISTS];
    struct kiln_tuned *next; /* of all that have buckets */
    bool is_listed;
};

enum {
    KILN_MAX_PARAMETER_BYTES = 4096, /* what drivers before CUDA 12.1 take, and HIP */
    KILN_MAX_PARAMETERS = KILN_MAX_PARAMETER_BYTES / 8, /* of a cooperative launch, which is given each one's address */
    KILN_DRIVER_OUT_OF_DATE = 222    /* CUDA_ERROR_UNSUPPORTED_PTX_VERSION */
};

/* Notes a failure for the calling thread, and returns its status. */
KILN_INTERNAL int kiln_fail(int status, const char *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Notes what a function of the driver returned, while something was done to `what`; 0 is no failure. A code that means one
 * of the library's own becomes that. One below 0 was noted where it arose, if not in a program's table. */
KILN_INTERNAL int kiln_driver_failed(int code, const char *call, const char *what, const char *log);

/* The driver in use, ready; NULL before the first use, and in a child of a process that used it. */
extern KILN_INTERNAL const struct kiln_driver *kiln_driver_in_use;

/* Finds and opens the driver where none is in use. */
KILN_INTERNAL int kiln_open_driver(const struct kiln_driver **driver);

/* The driver, and where the calling thread would launch. */
static inline int kiln_where(const struct kiln_driver **driver, struct kiln_current *current)
{
    *driver = __atomic_load_n(&kiln_driver_in_use, __ATOMIC_ACQUIRE);
    if (*driver == NULL) {
        const int status = kiln_open_driver(driver);
        if (status != 0) {
            return status;
        }
    }
    const int code = (*driver)->current((*driver)->user, current);
    return code == 0 ? 0 : kiln_driver_failed(code, "current", "to find the current device", NULL);
}

/* One lock for everything that is written once and read by every launch. */
KILN_INTERNAL void kiln_lock(void);
KILN_INTERNAL void kiln_unlock(void);

/* A device, from memory where it was described before. Under the lock. */
KILN_INTERNAL int kiln_describe_known(
    const struct kiln_driver *driver, int32_t device, struct kiln_device *described);

/* Forgets what is known of devices. Under the lock. */
KILN_INTERNAL void kiln_forget_devices(void);

/* Whether anything is loaded, or known of an image. Under the lock. */
KILN_INTERNAL bool kiln_has_slots(void);

/* How well an image suits a device, above 0; or a status, with why not in `why`. */
KILN_INTERNAL int kiln_judge(
    const struct kiln_image *image, const struct kiln_device *device, char *why, size_t size);

/* The target that the environment allows alone; NULL: all. */
KILN_INTERNAL const char *kiln_only_target(void);

/* The image of a variant that suits a device best, into `image`; or a status, with why in `why`. */
KILN_INTERNAL int kiln_best_image(const struct kiln_variant *variant, const struct kiln_device *device,
    const struct kiln_image **image, char *why, size_t size);

/* The slot of a variant's image for where the thread would launch: of the one for the device, or of `given`. Its image
 * may be NULL, and its function too. */
KILN_INTERNAL int kiln_find_slot(const struct kiln_driver *driver, const struct kiln_current *current,
    const struct kiln_variant *variant, const struct kiln_image *given, struct kiln_slot **slot);

/* Loads the image of a slot that has one. A stream that is captured may not allow it. Of a fat binary the driver may take
 * another image: then the slot is another one afterwards. */
KILN_INTERNAL int kiln_load_slot(const struct kiln_driver *driver, const struct kiln_variant *variant,
    struct kiln_slot **slot, struct CUstream_st *stream, bool has_stream);

/* The image that suits a device best of those that are written for a capability, such as 90; NULL where there is none. */
KILN_INTERNAL const struct kiln_image *kiln_image_of_capability(
    const struct kiln_variant *variant, const struct kiln_device *device, int32_t capability);

/* Whether an image is written for a capability. */
KILN_INTERNAL bool kiln_is_of_capability(const struct kiln_image *image, int32_t capability);

/* Why a device has no image of a variant, as a failure. */
KILN_INTERNAL int kiln_refuse(const struct kiln_driver *driver, const struct kiln_variant *variant, int32_t device);

/* A look at several variants, and what comes of it. */
struct kiln_search {
    const char *name; /* of what is launched */
    const void *args;
    const struct kiln_group *group; /* NULL: the variants are no group, and no tuner is asked */
    struct CUstream_st *stream;
    bool launches; /* else a choice is only told */
    const struct kiln_driver *driver; /* NULL until a device has to be known: an empty grid needs none */
    struct kiln_current current;
    const struct kiln_variant *variant; /* the one that serves the call */
    struct kiln_slot *slot;             /* NULL for an empty grid */
    uint32_t grid[3];
};

/* 0, or what stands against a variant. Nothing is written down, for most searches end at the first or second one; only
 * what no other variant can mend is noted as a failure, and ends the search with `is_over`. */
KILN_INTERNAL int kiln_look(struct kiln_search *search, const struct kiln_variant *variant, bool *is_over);

/* The variant that a group's search looks at first, NULL for none; the pointer is NULL while no tuner is on. The driver and
 * where the thread would launch are known by then. */
typedef const struct kiln_variant *kiln_preference(const struct kiln_search *search);
extern KILN_INTERNAL kiln_preference *kiln_preferred;

/* Goes up whenever what launches found of choices may no longer hold. */
extern KILN_INTERNAL uint32_t kiln_generation;

/* Why a variant cannot serve a call, promises and select; 0 where it can. */
KILN_INTERNAL int kiln_check_call(const struct kiln_variant *variant, const void *args);

/* The grid of a call, which may be empty; or a failure. */
KILN_INTERNAL int kiln_grid_of(const struct kiln_variant *variant, const void *args, uint32_t grid[3]);

/* Finds the address of each parameter in a launch's buffer. */
KILN_INTERNAL int kiln_find_values(const struct kiln_launch_request *request, void *values[KILN_MAX_PARAMETERS]);

/* Launches what a slot holds; the grid is neither empty nor out of range. */
KILN_INTERNAL int kiln_start(const struct kiln_driver *driver, const struct kiln_variant *variant,
    struct kiln_slot *slot, const void *args, const uint32_t grid[3], struct CUstream_st *stream);

/* Whether each pointer among the arguments is memory that the device can reach. */
KILN_INTERNAL int kiln_check_pointers(const struct kiln_driver *driver, const struct kiln_variant *variant,
    const void *args, int32_t device, enum kiln_checks checks);

#endif
