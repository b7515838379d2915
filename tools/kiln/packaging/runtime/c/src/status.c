/* Status codes in words, and the calling thread's last failure. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static __thread struct kiln_error last_error;

static const struct {
    int status;
    const char *name;
    const char *text;
} statuses[] = {
#define STATUS(word, text) { KILN_##word, "KILN_" #word, text }
    STATUS(SUCCESS, "success"),
    STATUS(ERROR_INVALID_ARGUMENT, "an argument of the call is invalid"),
    STATUS(ERROR_DISABLED, "the library was compiled without kernels"),
    STATUS(ERROR_OUT_OF_MEMORY, "the host has no memory left"),
    STATUS(ERROR_DRIVER_NOT_FOUND, "no driver of a GPU was found"),
    STATUS(ERROR_DRIVER_TOO_OLD, "the driver is too old"),
    STATUS(ERROR_SYMBOL_MISSING, "the driver lacks a function that is needed"),
    STATUS(ERROR_FORKED, "the driver was in use before fork(), and cannot be used in the child"),
    STATUS(ERROR_NO_CONTEXT, "no context is current in the calling thread"),
    STATUS(ERROR_NO_IMAGE, "the library has no image that the device takes"),
    STATUS(ERROR_INVALID_IMAGE, "the driver cannot read the image"),
    STATUS(ERROR_NOT_SELECTED, "the kernel cannot serve a call with these arguments"),
    STATUS(ERROR_MISALIGNED, "an address is not a multiple of what its signature promises"),
    STATUS(ERROR_PROMISE, "a value is not what its signature promises"),
    STATUS(ERROR_GRID_OUT_OF_RANGE, "the grid is negative, larger than a driver takes, or no number"),
    STATUS(ERROR_TOO_MANY_THREADS, "a block has more threads than the device takes"),
    STATUS(ERROR_TOO_MUCH_SHARED, "a block needs more shared memory than the device has"),
    STATUS(ERROR_PARAMETERS_TOO_LARGE, "the kernel has more than 4096 bytes of parameters"),
    STATUS(ERROR_UNSUPPORTED, "the device lacks what the kernel's launch needs"),
    STATUS(ERROR_SCRATCH_NEEDED, "the kernel needs scratch memory, and no allocator is set"),
    STATUS(ERROR_SCRATCH_FAILED, "the allocator of scratch memory gave none"),
    STATUS(ERROR_BAD_POINTER, "an address is no memory that the device can reach"),
    STATUS(ERROR_CAPTURING, "an image cannot be loaded while the stream is capturing"),
    STATUS(ERROR_FILE, "a file of choices cannot be read or written"),
    STATUS(ERROR_IN_PLACE, "a launch with one address twice cannot be repeated to measure it"),
    STATUS(ERROR_NOT_MEASURED, "the tuner did not measure it"),
#undef STATUS
};

/* A driver's code in its own words; NULL where there is no driver, or it does not know the code. */
static const char *ask_driver(int code, bool for_name)
{
    const struct kiln_driver *driver = __atomic_load_n(&kiln_driver_in_use, __ATOMIC_ACQUIRE);
    if (code <= 0 || driver == NULL) {
        return NULL;
    }
    return for_name ? driver->error_name(driver->user, code) : driver->error_text(driver->user, code);
}

const char *kiln_status_name(int status)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        if (statuses[i].status == status) {
            return statuses[i].name;
        }
    }
    const char *name = ask_driver(status, true);
    return name != NULL ? name : status > 0 ? "an error of the driver" : "an unknown status";
}

const char *kiln_status_text(int status)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        if (statuses[i].status == status) {
            return statuses[i].text;
        }
    }
    const char *text = ask_driver(status, false);
    return text != NULL ? text : status > 0 ? "the driver reports an error" : "this is no status of the library";
}

const struct kiln_error *kiln_last_error(void)
{
    if (last_error.call == NULL) {
        last_error.call = "";
    }
    return &last_error;
}

int kiln_fail(int status, const char *call, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    last_error.status = status;
    last_error.call = call;
    vsnprintf(last_error.detail, sizeof last_error.detail, format, arguments);
    va_end(arguments);
    return status;
}

/* Errors that stay: the context is lost, and each call from then on reports the same. CUDA and HIP share the numbers. */
static bool is_lasting(int code)
{
    return code == 700 || code == 702 || code == 710 || (code >= 714 && code <= 721) || code == 999;
}

int kiln_driver_failed(int code, const char *call, const char *what, const char *log)
{
    enum { INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_PTX = 218 };
    if (code <= 0) {
        /* A program's own table cannot note a failure. */
        return code == 0 || last_error.status == code ? code : kiln_fail(code, call, "%s, %s", kiln_status_text(code), what);
    }
    const char *name = ask_driver(code, true);
    const char *text = ask_driver(code, false);
    const int status = code == INVALID_CONTEXT ? KILN_ERROR_NO_CONTEXT
        : code == INVALID_IMAGE || code == INVALID_PTX ? KILN_ERROR_INVALID_IMAGE
        : code == KILN_DRIVER_OUT_OF_DATE ? KILN_ERROR_DRIVER_TOO_OLD
                                          : code;
    const char *hint = code == INVALID_CONTEXT
        ? "; make a context current in this thread first: cuCtxSetCurrent, cudaSetDevice and the like"
        : is_lasting(code) ? "; this may come from earlier work, since such an error stays until the process ends"
                           : "";
    return kiln_fail(status, call, "%s (%d, %s) %s%s%s%s", name != NULL ? name : "error", code,
        text != NULL ? text : "unknown to the driver", what, hint, log != NULL && log[0] != '\0' ? ":\n" : "",
        log != NULL ? log : "");
}
