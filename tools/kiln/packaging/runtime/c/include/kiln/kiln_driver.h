/* What the library asks of a GPU's driver: one table of functions, which a program may replace.
 *
 * By default the driver is looked for at the first call that needs one: libcuda.so.1, and where that finds no GPU
 * libamdhip64.so. Which functions are resolved, and which of them may be missing, is in src/cuda.c and src/hip.c.
 *
 * A function of the table gets the table's `user` first, and returns 0 or the driver's own error code. `open`, `describe`,
 * `load`, `unload`, `chosen` and `get_function` are called by one thread at a time, the others by several at once.
 */
#ifndef KILN_DRIVER_H
#define KILN_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what CUstream and cudaStream_t point to; a hipStream_t is cast */
struct kiln_image;

enum kiln_vendor {
    KILN_VENDOR_NVIDIA = 1,
    KILN_VENDOR_AMD = 2
};

struct kiln_device {
    enum kiln_vendor vendor;
    int32_t ordinal;
    char architecture[64];  /* "sm_90"; "gfx942:sramecc+:xnack-" */
    int32_t capability;     /* 90 for compute capability 9.0; 0 for AMD */
    int32_t driver_version; /* 12040 for a driver of CUDA 12.4; HIP's own number for AMD */
    uint32_t warp_size;
    uint32_t max_threads;   /* of a block */
    uint32_t max_shared;    /* bytes a block can have, after it was asked for them */
    uint32_t multiprocessors;
    uint32_t l2_bytes;
    bool cooperative;       /* whether it launches cooperative grids */
    bool clusters;
    bool pageable_access;   /* whether kernels read memory of malloc */
    char name[128];         /* "NVIDIA H200"; empty where the driver has none */
};

/* Where the calling thread would launch. */
struct kiln_current {
    int32_t device;
    uint64_t scope; /* what is loaded serves wherever this number is the same; 0: everywhere */
};

/* One launch. */
struct kiln_launch_request {
    void *function;
    const struct kiln_image *image;
    uint32_t grid[3]; /* in clusters: a driver that counts blocks gets x times cluster[0], and so on */
    struct CUstream_st *stream;
    void *buffer; /* the parameters, image->parameter_bytes of them */
};

enum kiln_memory {
    KILN_MEMORY_UNKNOWN = 0, /* the driver knows nothing of the address: memory of malloc, or none */
    KILN_MEMORY_DEVICE = 1,
    KILN_MEMORY_MANAGED = 2,
    KILN_MEMORY_HOST = 3     /* allocated or registered by the driver, so that kernels can reach it */
};

struct kiln_pointer {
    enum kiln_memory memory;
    int32_t device; /* whose memory it is; for managed memory and the host's where it was allocated */
};

struct kiln_driver {
    size_t struct_bytes; /* sizeof(struct kiln_driver) */
    const char *name;    /* "CUDA" */
    void *user;

    /* Called once, before any other. */
    int (*open)(void *user);
    int (*current)(void *user, struct kiln_current *current);
    int (*describe)(void *user, int32_t device, struct kiln_device *described);

    /* Loads the image from its data, or from a fat binary: then the driver takes what suits it of the images in there. What
     * a compiler in the driver says goes to log, which is empty before. */
    int (*load)(
        void *user, const struct kiln_image *image, const void *data, void **module, char *log, size_t log_bytes);
    int (*unload)(void *user, void *module, uint64_t scope);
    /* Of a fat binary: the capability that the code is written for which the driver takes on the device, 90 for 9.0, also
     * where it compiles that. NULL for a driver that takes no fat binaries. */
    int (*chosen)(void *user, void *module, const struct kiln_image *image, int32_t device, int32_t *capability);
    /* The function, fit to be launched on the device: with as much shared memory as the image wants. */
    int (*get_function)(void *user, void *module, const struct kiln_image *image, int32_t device, void **function);
    /* Puts the function where it runs, as its first launch would do otherwise. */
    int (*settle)(void *user, void *function);
    int (*launch)(void *user, const struct kiln_launch_request *request);

    int (*capturing)(void *user, struct CUstream_st *stream, bool *capturing);
    int (*pointer)(void *user, const void *address, struct kiln_pointer *found);
    /* "CUDA_ERROR_OUT_OF_MEMORY", and a sentence; NULL for a code that it does not have. */
    const char *(*error_name)(void *user, int code);
    const char *(*error_text)(void *user, int code);

    /* For whoever measures. Memory is the current device's; elapsed waits for the end. */
    int (*allocate)(void *user, size_t bytes, void **address);
    int (*release)(void *user, void *address);
    int (*fill)(void *user, void *address, size_t bytes, struct CUstream_st *stream);
    int (*create_event)(void *user, void **event);
    int (*destroy_event)(void *user, void *event);
    int (*record_event)(void *user, void *event, struct CUstream_st *stream);
    int (*elapsed)(void *user, void *start, void *end, float *milliseconds);
};

/* The tables that the library has itself. */
const struct kiln_driver *kiln_cuda_driver(void);
const struct kiln_driver *kiln_hip_driver(void);

/* Uses this table, which has to stay as long as the library is used, from now on. NULL: look for a driver again, also
 * after none was found. Refused while images are loaded: kiln_unload() first. */
int kiln_use_driver(const struct kiln_driver *driver);

/* Describes a device; -1 is the one that the calling thread would launch on. */
int kiln_describe_device(int32_t device, struct kiln_device *described);

#ifdef __cplusplus
}
#endif

#endif
