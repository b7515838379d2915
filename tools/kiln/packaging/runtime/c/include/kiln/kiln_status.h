/* What a call came to: 0, a driver's own error code above 0, or one of the library's own below 0.
 *
 * A call that fails leaves more than its code behind, for the thread that made it: kiln_last_error() has what was asked
 * of the driver, and a sentence with names and numbers. Nothing is ever printed, and nothing ends the process.
 *
 * What is told is the first error. One that a driver keeps reporting from then on, such as an illegal address in an earlier
 * kernel, is passed on as it is, and the sentence says that it may be older than the call.
 */
#ifndef KILN_STATUS_H
#define KILN_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* The library's own codes. An empty grid is no error: nothing is launched, and no driver is asked. */
enum kiln_status {
    KILN_SUCCESS = 0,
    KILN_ERROR_INVALID_ARGUMENT = -1,   /* of the call itself: a null pointer, an unknown name */
    KILN_ERROR_DISABLED = -2,           /* the library was compiled with KILN_DISABLED */
    KILN_ERROR_OUT_OF_MEMORY = -3,      /* of the host; a device's is the driver's own code 2 */
    KILN_ERROR_DRIVER_NOT_FOUND = -4,
    KILN_ERROR_DRIVER_TOO_OLD = -5,
    KILN_ERROR_SYMBOL_MISSING = -6,     /* the driver lacks a function that is needed */
    KILN_ERROR_FORKED = -7,             /* the driver was in use before fork(), and no child can use it */
    KILN_ERROR_NO_CONTEXT = -8,         /* no context is current, and one has to be: cuCtxSetCurrent, cudaSetDevice */
    KILN_ERROR_NO_IMAGE = -9,           /* nothing was built for the device */
    KILN_ERROR_INVALID_IMAGE = -10,     /* the driver cannot read the image */
    KILN_ERROR_NOT_SELECTED = -11,      /* what kernels.yaml says under select does not hold */
    KILN_ERROR_MISALIGNED = -12,        /* an address breaks a promise of the signature */
    KILN_ERROR_PROMISE = -13,           /* a value does */
    KILN_ERROR_GRID_OUT_OF_RANGE = -14,
    KILN_ERROR_TOO_MANY_THREADS = -15,  /* more in a block than the device takes */
    KILN_ERROR_TOO_MUCH_SHARED = -16,   /* more shared memory for a block than the device has */
    KILN_ERROR_PARAMETERS_TOO_LARGE = -17,
    KILN_ERROR_UNSUPPORTED = -18,       /* clusters or a cooperative launch, and the device has none */
    KILN_ERROR_SCRATCH_NEEDED = -19,    /* the image wants scratch memory, and no allocator was set */
    KILN_ERROR_SCRATCH_FAILED = -20,    /* the allocator gave none */
    KILN_ERROR_BAD_POINTER = -21,       /* checks are on, and an address is none of the device */
    KILN_ERROR_CAPTURING = -22,         /* an image would have to be loaded into a stream that is capturing */
    KILN_ERROR_FILE = -23,              /* a file of choices cannot be read or written */
    KILN_ERROR_IN_PLACE = -24,          /* two arguments have one address: the tuner cannot repeat such a launch */
    KILN_ERROR_NOT_MEASURED = -25       /* the tuner's time was up before, or its reset refused */
};

/* The last failure of a call into this library, of the calling thread. */
struct kiln_error {
    int status;
    const char *call; /* the member of struct kiln_driver that failed, such as "load"; "" where no driver was asked */
    char detail[512];
};

/* "KILN_ERROR_NO_IMAGE"; for a driver's code the driver's own word, such as "CUDA_ERROR_OUT_OF_MEMORY". Never NULL. */
const char *kiln_status_name(int status);

/* A sentence. Never NULL. */
const char *kiln_status_text(int status);

/* Never NULL; its status is 0 before the thread's first failure. It stays until the thread's next one. */
const struct kiln_error *kiln_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
