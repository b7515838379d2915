/* Which driver is in use: the program's own table, or CUDA's, or HIP's; opened once, and never in a forked child. */
#include "internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifndef KILN_DISABLED

const struct kiln_driver *kiln_driver_in_use = NULL;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread bool has_lock;                /* the calling thread */
static const struct kiln_driver *own_table;   /* the program's */
static const struct kiln_driver *opened;      /* in use, or lost by a fork */
static struct kiln_error failure;             /* why none could be opened; status 0 before */
static bool watches_forks;
static bool is_forked;                        /* this process is a child, and its parent had the driver open */

enum { KNOWN_DEVICES = 32 };
static struct kiln_device known[KNOWN_DEVICES];
static bool is_known[KNOWN_DEVICES];

void kiln_lock(void)
{
    pthread_mutex_lock(&mutex);
    has_lock = true;
}

void kiln_unlock(void)
{
    has_lock = false;
    pthread_mutex_unlock(&mutex);
}

/* A driver may itself fork while it is opened or loads, to run a helper: then the lock is this thread's already. */
static void before_fork(void)
{
    if (!has_lock) {
        pthread_mutex_lock(&mutex);
    }
}

static void after_fork(void)
{
    if (!has_lock) {
        pthread_mutex_unlock(&mutex);
    }
}

/* The child is one thread, and the lock is its own. */
static void after_fork_in_child(void)
{
    if (opened != NULL) {
        is_forked = true;
        __atomic_store_n(&kiln_driver_in_use, NULL, __ATOMIC_RELEASE);
    }
    after_fork();
}

static int note_again(const struct kiln_error *error)
{
    return kiln_fail(error->status, error->call, "%s", error->detail);
}

static int open_one(const struct kiln_driver *driver)
{
    if (driver->struct_bytes < sizeof *driver) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "open",
            "the table of the driver has %zu bytes, and this library knows one of %zu", driver->struct_bytes,
            sizeof *driver);
    }
    const int code = driver->open(driver->user);
    if (code > 0) {
        const char *name = driver->error_name(driver->user, code);
        const char *text = driver->error_text(driver->user, code);
        return kiln_fail(code, "open", "%s (%d, %s) while the driver %s was opened", name != NULL ? name : "error", code,
            text != NULL ? text : "unknown to the driver", driver->name);
    }
    return kiln_driver_failed(code, "open", "while the driver was opened", NULL);
}

/* The program's table; else CUDA, and where that has no GPU, HIP. Of two failures, the one that says more. A libcuda that
 * is there to be linked with, not to be run, says that it is a stub, or before CUDA 11 that it does not know what is
 * wrong. */
static int open_any(const struct kiln_driver **driver)
{
    enum { STUB_LIBRARY = 34, NO_DEVICE = 100, UNKNOWN = 999 };
    if (own_table != NULL) {
        *driver = own_table;
        return open_one(own_table);
    }
    *driver = kiln_cuda_driver();
    const int cuda = open_one(*driver);
    const bool may_be_stub = cuda == STUB_LIBRARY || cuda == UNKNOWN;
    if (cuda != KILN_ERROR_DRIVER_NOT_FOUND && cuda != NO_DEVICE && !may_be_stub) {
        return cuda;
    }
    const struct kiln_error first = *kiln_last_error();
    *driver = kiln_hip_driver();
    const int hip = open_one(*driver);
    if (hip == KILN_ERROR_DRIVER_NOT_FOUND && cuda == KILN_ERROR_DRIVER_NOT_FOUND) {
        const struct kiln_error second = *kiln_last_error();
        return kiln_fail(hip, "dlopen", "%.250s; %.250s", first.detail, second.detail);
    }
    return hip == KILN_ERROR_DRIVER_NOT_FOUND || (hip != 0 && may_be_stub) ? note_again(&first) : hip;
}

int kiln_open_driver(const struct kiln_driver **driver)
{
    int status = 0;
    kiln_lock();
    if (is_forked) {
        status = kiln_fail(KILN_ERROR_FORKED, "",
            "this process was forked from one that had used the driver; start it with exec, or fork before the first use");
    } else if (failure.status != 0) {
        status = note_again(&failure);
    } else if (opened == NULL) {
        if (!watches_forks) {
            watches_forks = pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0;
        }
        const struct kiln_driver *found = NULL;
        status = watches_forks ? open_any(&found)
                               : kiln_fail(KILN_ERROR_OUT_OF_MEMORY, "pthread_atfork", "no memory to watch for forks");
        if (status == 0) {
            opened = found;
            __atomic_store_n(&kiln_driver_in_use, found, __ATOMIC_RELEASE);
        } else {
            failure = *kiln_last_error();
        }
    }
    *driver = opened;
    kiln_unlock();
    return status;
}

int kiln_use_driver(const struct kiln_driver *driver)
{
    int status = 0;
    kiln_lock();
    if (is_forked) {
        status = kiln_fail(KILN_ERROR_FORKED, "", "the parent of this process had used a driver");
    } else if (kiln_has_slots()) {
        status = kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "",
            "images are loaded with another driver: unload them first, or set the driver before the first launch");
    } else {
        own_table = driver;
        opened = NULL;
        memset(&failure, 0, sizeof failure);
        kiln_forget_devices();
        __atomic_add_fetch(&kiln_generation, 1, __ATOMIC_RELEASE);
        __atomic_store_n(&kiln_driver_in_use, NULL, __ATOMIC_RELEASE);
    }
    kiln_unlock();
    return status;
}

int kiln_describe_known(const struct kiln_driver *driver, int32_t device, struct kiln_device *described)
{
    const bool has_place = device >= 0 && device < KNOWN_DEVICES;
    if (has_place && is_known[device]) {
        *described = known[device];
        return 0;
    }
    memset(described, 0, sizeof *described);
    const int code = driver->describe(driver->user, device, described);
    if (code != 0) {
        return kiln_driver_failed(code, "describe", "while the device was described", NULL);
    }
    if (has_place) {
        known[device] = *described;
        is_known[device] = true;
    }
    return 0;
}

void kiln_forget_devices(void)
{
    memset(is_known, 0, sizeof is_known);
}

int kiln_describe_device(int32_t device, struct kiln_device *described)
{
    if (described == NULL) {
        return kiln_fail(KILN_ERROR_INVALID_ARGUMENT, "", "there is no place to describe the device in");
    }
    const struct kiln_driver *driver = __atomic_load_n(&kiln_driver_in_use, __ATOMIC_ACQUIRE);
    struct kiln_current current = { device, 0 };
    const int status = device < 0 ? kiln_where(&driver, &current) : driver != NULL ? 0 : kiln_open_driver(&driver);
    if (status != 0) {
        return status;
    }
    kiln_lock();
    const int outcome = kiln_describe_known(driver, current.device, described);
    kiln_unlock();
    return outcome;
}

#endif
