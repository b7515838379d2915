/* libcuda.so.1 for tests: see double.h. An image's data is a text, which names it in the log.
 *
 * -DOLD leaves out what CUDA 12.0 brought, -DOLDER what 11.8 did too, -DBROKEN a function that every driver has.
 */
#include "double.h"

#include <time.h>

struct module {
    const char *text;
    const struct double_context *context; /* NULL: a library, for all of them */
    int opt_in[DOUBLE_DEVICES];           /* bytes of dynamic shared memory that functions may have */
    bool wide_clusters;
};

typedef struct {
    int id;
    char pad[4];
    unsigned value[16];
} attribute;

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    attribute *attributes;
    unsigned count;
} configuration;

static struct double_state state = {
    .device_count = 1,
    .capability = { 90, 90, 90, 90, 90, 90, 90, 90 },
    .taken = { 90, 90, 90, 90, 90, 90, 90, 90 },
    .driver_version = 13000,
    .max_threads = 1024,
    .max_shared = 232448,
    .cooperative = 1,
    .clusters = 1,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

static __thread struct double_context *now;
static struct module *modules[64];

struct double_state *double_state(void) { return &state; }
const char *double_asked(void) { return state.log; }

static void note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&state.lock);
    const size_t room = sizeof state.log - state.log_bytes;
    const size_t more = (size_t)vsnprintf(state.log + state.log_bytes, room, format, arguments);
    state.log_bytes += more < room ? more : room - 1; /* what comes behind a full log is lost */
    pthread_mutex_unlock(&state.lock);
    va_end(arguments);
}

static int answer(const char *function)
{
    return state.failing != NULL && strcmp(state.failing, function) == 0 ? state.code : 0;
}

#define ANSWER() do { const int code = answer(__func__); if (code != 0) return code; } while (0)

int cuInit(unsigned flags) { ANSWER(); note("cuInit\n"); return (int)flags; }
int cuDriverGetVersion(int *version) { *version = state.driver_version; return 0; }
int cuDeviceGetCount(int *count) { ANSWER(); *count = state.device_count; return 0; }

int cuGetErrorName(int code, const char **name)
{
    *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
    return code == 12345;
}

int cuGetErrorString(int code, const char **text)
{
    *text = code == 2 ? "out of memory" : "something went wrong";
    return code == 12345;
}

int cuDeviceGetAttribute(int *value, int number, int device)
{
    ANSWER();
    switch (number) {
    case 1: *value = state.max_threads; return 0;
    case 10: *value = 32; return 0;
    case 16: *value = 132; return 0;
    case 38: *value = 50 << 20; return 0;
    case 75: *value = state.capability[device] / 10; return 0;
    case 76: *value = state.capability[device] % 10; return 0;
    case 88: *value = state.pageable; return 0;
    case 95: *value = state.cooperative; return 0;
    case 97: *value = state.max_shared; return 0;
    case 115: *value = 1; return 0; /* memory pools */
    case 120: *value = state.clusters; return state.clusters < 0 ? 1 : 0;
    default: return 1;
    }
}

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "NVIDIA H%d00 (80 GB)", device + 1);
    return 0;
}

/* For programs in other languages than C. */
int double_set(const char *name, int value) { return double_set_number(&state, name, value); }
void double_fail(const char *function, int code) { state.failing = function; state.code = code; }
void double_say(const char *compiler_log) { state.compiler_log = compiler_log; }
void double_log(char *text, size_t size) { double_take_log(&state, text, size); }
void double_point(uint64_t address, int type, int is_managed, int device)
{
    double_add_pointer(&state, address, type, is_managed != 0, device);
}

/* Contexts are the test's: it makes them, and these say which is current. */
int cuDevicePrimaryCtxRetain(struct double_context **context, int device)
{
    static struct double_context primary[DOUBLE_DEVICES];
    ANSWER();
    primary[device].device = device;
    *context = &primary[device];
    note("retain %d\n", device);
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { note("release %d\n", device); return 0; }
#ifndef OLD
/* A context that was reset is another one. */
int cuCtxGetId(struct double_context *context, unsigned long long *id)
{
    if (context->is_destroyed) return 709;
    *id = (uintptr_t)context + (unsigned)state.resets;
    return 0;
}
#endif
int cuCtxSynchronize(void) { ANSWER(); return now == NULL ? 201 : 0; }
int cuCtxSetCurrent(struct double_context *context) { now = context; return 0; }
int cuCtxGetCurrent(struct double_context **context) { *context = now; return 0; }
int cuCtxGetDevice(int *device) { ANSWER(); if (now == NULL) return 201; *device = now->device; return 0; }

static __thread struct double_context *pushed_over;
int cuCtxPushCurrent_v2(struct double_context *context)
{
    if (context->is_destroyed) return 709;
    pushed_over = now;
    now = context;
    return 0;
}
int cuCtxPopCurrent_v2(struct double_context **context) { *context = now; now = pushed_over; return 0; }

/* Whether as many loads have begun as are to be under way at once: a load waits for them, ten seconds at most. */
static bool meets_others(void)
{
    static int begun;
    if (state.loads_together == 0) return true;
    __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 10000; i++) {
        if (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) >= state.loads_together) return true;
        nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
    }
    return false;
}

static int new_module(struct module **module, const void *data, unsigned count, int *options, void **values, const char *name,
    const struct double_context *context)
{
    const int code = answer(name);
    if (code != 0) {
        for (unsigned i = 0; i + 1 < count; i++) {
            if (options[i] == 5 && options[i + 1] == 6 && state.compiler_log != NULL) {
                snprintf(values[i], (size_t)values[i + 1], "%s", state.compiler_log);
            }
        }
        return code;
    }
    if (!meets_others()) return 999;
    struct module *made = calloc(1, sizeof *made);
    made->text = data;
    made->context = context;
    *module = made;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        struct module *none = NULL;
        if (__atomic_compare_exchange_n(&modules[i], &none, made, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) break;
    }
    note("load %s\n", made->text);
    __atomic_add_fetch(&state.loaded, 1, __ATOMIC_RELAXED);
    return 0;
}

static void drop(struct module *module)
{
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        if (modules[i] == module) modules[i] = NULL;
    }
    note("drop %s\n", module->text);
    free(module);
    __atomic_sub_fetch(&state.loaded, 1, __ATOMIC_RELAXED);
}

/* A context goes, and what was loaded in it. */
void double_destroy(struct double_context *context)
{
    context->is_destroyed = true;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        if (modules[i] != NULL && modules[i]->context == context) drop(modules[i]);
    }
}

int cuModuleUnload(struct module *module)
{
    if (module->context != now) return 400;
    drop(module);
    return answer(__func__);
}

int cuModuleGetFunction(struct module **function, struct module *module, const char *name)
{
    ANSWER();
    *function = module;
    return name[0] != '\0' ? 0 : 500;
}

static int set_attribute(struct module *function, int number, int value, int device)
{
    note("attribute %d %d of %s on %d\n", number, value, function->text, device);
    if (number == 8) function->opt_in[device] = value;
    else if (number == 14) function->wide_clusters = value != 0;
    else return 1;
    return 0;
}

static int get_attribute(int *value, int number, const struct module *function, int device)
{
    note("taken of %s on %d\n", function->text, device);
    *value = state.taken[device];
    return number == 5 ? 0 : 1;
}

int cuFuncGetAttribute(int *value, int number, struct module *function)
{
    ANSWER();
    return get_attribute(value, number, function, now->device);
}

int cuFuncSetAttribute(struct module *function, int number, int value)
{
    ANSWER();
    return set_attribute(function, number, value, now->device);
}

#ifndef BROKEN
int cuModuleLoadDataEx(struct module **module, const void *data, unsigned count, int *options, void **values)
{
    return now == NULL ? 201 : new_module(module, data, count, options, values, __func__, now);
}
#endif

#ifndef OLD
int cuLibraryLoadData(struct module **library, const void *data, int *options, void **values, unsigned count,
    int *own_options, void **own_values, unsigned own_count)
{
    if (own_options != NULL || own_values != NULL || own_count != 0) return 1;
    return new_module(library, data, count, options, values, __func__, NULL);
}

int cuLibraryUnload(struct module *library) { drop(library); return answer(__func__); }
int cuLibraryGetKernel(struct module **kernel, struct module *library, const char *name)
{
    return cuModuleGetFunction(kernel, library, name);
}
int cuKernelGetAttribute(int *value, int number, struct module *kernel, int device)
{
    ANSWER();
    return get_attribute(value, number, kernel, device);
}
int cuKernelSetAttribute(int number, int value, struct module *kernel, int device)
{
    ANSWER();
    return set_attribute(kernel, number, value, device);
}
int cuKernelGetFunction(struct module **function, struct module *kernel)
{
    ANSWER();
    *function = kernel;
    return now == NULL ? 201 : 0;
}
int cuFuncLoad(struct module *function) { note("settle %s\n", function->text); return 0; }
#endif

static bool is_cooperative(const configuration *config)
{
    for (unsigned i = 0; i < config->count; i++) {
        if (config->attributes[i].id == 2 && config->attributes[i].value[0] != 0) return true;
    }
    return false;
}

static int start(const configuration *config, const struct module *function, void **values, void **extra)
{
    const int code = answer("launch");
    if (code != 0) return code;
    if (now == NULL) return 201;
    if (state.failing_image != NULL && strcmp(state.failing_image, function->text) == 0) return state.code;
    if (function->context != NULL && function->context != now) return 400;
    /* A cooperative launch is given values, or no graph could have it; the tests' kernel has four, in 32 bytes. */
    const bool together = is_cooperative(config);
    if (together ? extra != NULL || values == NULL : values != NULL) return 1;
    if (!together && (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != NULL)) return 1;
    if (config->shared > 48 * 1024 && (unsigned)function->opt_in[now->device] < config->shared) return 1;
    static const size_t offsets[] = { 0, 8, 16, 24 }, sizes[] = { 8, 4, 8, 8 };
    unsigned char gathered[32] = { 0 };
    for (size_t i = 0; together && i < 4; i++) memcpy(gathered + offsets[i], values[i], sizes[i]);
    const unsigned char *buffer = together ? gathered : extra[1];
    char hex[2 * 4096 + 1] = "";
    const size_t bytes = together ? sizeof gathered : *(size_t *)extra[3];
    for (size_t i = 0; i < bytes; i++) snprintf(hex + 2 * i, 3, "%02x", buffer[i]);
    char attributes[200] = "";
    for (unsigned i = 0; i < config->count; i++) {
        const attribute *each = &config->attributes[i];
        const size_t used = strlen(attributes);
        if (each->id == 4 && each->value[0] * each->value[1] * each->value[2] > 8 && !function->wide_clusters) return 912;
        snprintf(attributes + used, sizeof attributes - used, " %d:%u,%u,%u", each->id, each->value[0], each->value[1],
            each->value[2]);
    }
    note("launch %s on %d grid %u,%u,%u block %u,%u,%u shared %u stream %p%s [%s]\n", function->text, now->device,
        config->grid[0], config->grid[1], config->grid[2], config->block[0], config->block[1], config->block[2], config->shared,
        config->stream, attributes, hex);
    double_answer(buffer);
    double_pass(&state, function->text);
    return 0;
}

int cuLaunchKernel(struct module *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned shared, void *stream, void **values, void **extra)
{
    const configuration config = { { gx, gy, gz }, { bx, by, bz }, shared, stream, NULL, 0 };
    return start(&config, function, values, extra);
}

#ifndef OLDER
int cuLaunchKernelEx(const configuration *config, struct module *function, void **values, void **extra)
{
    return start(config, function, values, extra);
}
#endif

int cuStreamIsCapturing(void *stream, int *status) { (void)stream; ANSWER(); *status = state.capture_status; return 0; }

int cuPointerGetAttribute(void *value, int number, unsigned long long address)
{
    ANSWER();
    for (size_t i = 0; i < DOUBLE_POINTERS; i++) {
        const struct double_pointer *each = &state.pointers[i];
        if (each->address == NULL || (uintptr_t)each->address != (uintptr_t)address) continue;
        const int values[] = { [2] = each->type, [8] = each->is_managed, [9] = each->device };
        memcpy(value, &values[number], sizeof(int));
        return 0;
    }
    return 1;
}

int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
    ANSWER();
    void *memory = calloc(1, size);
    *address = (unsigned long long)(uintptr_t)memory;
    return memory == NULL ? 2 : 0;
}
int cuMemGetInfo_v2(size_t *available, size_t *total) { *available = 4096; *total = 1 << 20; return now == NULL ? 201 : 0; }
int cuMemFree_v2(unsigned long long address) { free((void *)(uintptr_t)address); return 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { memcpy((void *)(uintptr_t)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { memcpy(to, (void *)(uintptr_t)from, size); return 0; }
int cuMemsetD8Async(unsigned long long address, unsigned char byte, size_t size, void *stream)
{
    (void)stream;
    ANSWER();
    note("fill %zu\n", size);
    memset((void *)(uintptr_t)address, byte, size < 4096 ? size : 4096); /* of more nobody looks at the end */
    return 0;
}
/* With times (0) or without (2). */
int cuEventCreate(float **event, unsigned flags) { ANSWER(); *event = calloc(1, sizeof **event); return (int)(flags & ~2u); }
int cuEventDestroy_v2(float *event) { free(event); return 0; }
int cuEventRecord(float *event, void *stream) { (void)stream; ANSWER(); *event = double_tick(&state); return 0; }
int cuEventSynchronize(float *event) { (void)event; ANSWER(); return 0; }
int cuEventElapsedTime(float *milliseconds, float *start_event, float *end) { *milliseconds = *end - *start_event; return 0; }

/* What cudarc asks for besides. */
int cuDeviceGet(int *device, int ordinal) { ANSWER(); *device = ordinal; return 0; }
int cuStreamCreate(void **stream, unsigned flags) { *stream = malloc(1); return flags == 1 ? 0 : 1; }
int cuStreamDestroy_v2(void *stream) { free(stream); return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; ANSWER(); return 0; }
int cuStreamWaitEvent(void *stream, float *event, unsigned flags)
{
    (void)stream, (void)event;
    ANSWER();
    note("wait\n");
    return (int)flags;
}
int cuMemAllocAsync(unsigned long long *address, size_t size, void *stream)
{
    (void)stream;
    ANSWER();
    note("allocate %zu\n", size);
    return cuMemAlloc_v2(address, size);
}
int cuMemFreeAsync(unsigned long long address, void *stream) { (void)stream; note("free\n"); return cuMemFree_v2(address); }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t size, void *stream)
{
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, size);
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t size, void *stream)
{
    (void)stream;
    return cuMemcpyDtoH_v2(to, from, size);
}
