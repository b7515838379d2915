/* libamdhip64.so for tests: see double.h. An image's data is a text, which names it in the log. */
#include "double.h"

struct module {
    const char *text;
    int device;
};

typedef struct {
    int type, device;
    void *devicePointer, *hostPointer;
    int isManaged;
    unsigned allocationFlags;
} attributes;

static struct double_state state = {
    .device_count = 1,
    .architecture = { "gfx942:sramecc+:xnack-", "gfx942:sramecc+:xnack-", "gfx90a:sramecc+:xnack+" },
    .driver_version = 60032830,
    .max_threads = 1024,
    .max_shared = 65536,
    .cooperative = 1,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

static __thread int now;

struct double_state *double_state(void) { return &state; }

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

/* For programs in other languages than C. */
int double_set(const char *name, int value) { return double_set_number(&state, name, value); }
void double_fail(const char *function, int code) { state.failing = function; state.code = code; }
void double_log(char *text, size_t size) { double_take_log(&state, text, size); }
void double_point(uint64_t address, int type, int is_managed, int device)
{
    double_add_pointer(&state, address, type, is_managed != 0, device);
}

#define ANSWER() \
    do { \
        if (state.failing != NULL && strcmp(state.failing, __func__) == 0) return state.code; \
    } while (0)

int hipInit(unsigned flags) { ANSWER(); note("hipInit\n"); return (int)flags; }
int hipDriverGetVersion(int *version) { *version = state.driver_version; return 0; }
const char *hipGetErrorName(int code) { return code == 2 ? "hipErrorOutOfMemory" : "hipErrorOther"; }
const char *hipGetErrorString(int code) { return code == 2 ? "out of memory" : "something went wrong"; }
int hipGetDeviceCount(int *count) { ANSWER(); *count = state.device_count; return 0; }
int hipGetDevice(int *device) { ANSWER(); *device = now; return 0; }
int hipSetDevice(int device)
{
    if (device == state.lost_device - 1) return 100;
    now = device;
    return 0;
}

int hipDeviceGetAttribute(int *value, int number, int device)
{
    (void)device;
    ANSWER();
    switch (number) {
    case 10: *value = state.cooperative; return 0;
    case 19: *value = 4 << 20; return 0;
    case 56: *value = state.max_threads; return 0;
    case 63: *value = 304; return 0;
    case 65: *value = state.pageable; return 0;
    case 74: *value = state.max_shared; return 0;
    case 87: *value = 64; return 0;
    default: return 1;
    }
}

int hipGetDevicePropertiesR0600(char *properties, int device)
{
    ANSWER();
    strcpy(properties, "AMD Instinct MI300X");
    memcpy(properties + 1160, state.architecture[device], sizeof state.architecture[device]);
    return 0;
}

int hipModuleLoadData(struct module **module, const void *data)
{
    ANSWER();
    struct module *made = calloc(1, sizeof *made);
    made->text = data;
    made->device = now;
    *module = made;
    note("load %s on %d\n", made->text, now);
    __atomic_add_fetch(&state.loaded, 1, __ATOMIC_RELAXED);
    return 0;
}

int hipModuleUnload(struct module *module)
{
    ANSWER();
    if (module->device != now) return 400;
    note("drop %s on %d\n", module->text, now);
    free(module);
    __atomic_sub_fetch(&state.loaded, 1, __ATOMIC_RELAXED);
    return 0;
}

int hipModuleGetFunction(struct module **function, struct module *module, const char *name)
{
    ANSWER();
    *function = module;
    return name[0] != '\0' ? 0 : 500;
}

int hipModuleLaunchKernel(struct module *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
    unsigned shared, void *stream, void **values, void **extra)
{
    ANSWER();
    if (function->device != now || values != NULL || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3) {
        return 1;
    }
    const unsigned char *buffer = extra[1];
    char hex[2 * 4096 + 1] = "";
    for (size_t i = 0; i < *(size_t *)extra[3]; i++) snprintf(hex + 2 * i, 3, "%02x", buffer[i]);
    note("launch %s on %d grid %u,%u,%u block %u,%u,%u shared %u stream %p [%s]\n", function->text, now, gx, gy, gz, bx, by, bz,
        shared, stream, hex);
    double_answer(buffer);
    return 0;
}

/* The kernel of the tests takes a pointer, an int and two hidden pointers. */
int hipModuleLaunchCooperativeKernel(struct module *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, void *stream, void **values)
{
    ANSWER();
    uint64_t address, hidden[2];
    int32_t number;
    memcpy(&address, values[0], sizeof address);
    memcpy(&number, values[1], sizeof number);
    memcpy(&hidden[0], values[2], sizeof address);
    memcpy(&hidden[1], values[3], sizeof address);
    note("together %s on %d grid %u,%u,%u block %u,%u,%u shared %u stream %p %llx %d %llx %llx\n", function->text, now, gx, gy,
        gz, bx, by, bz, shared, stream, (unsigned long long)address, number, (unsigned long long)hidden[0],
        (unsigned long long)hidden[1]);
    return 0;
}

int hipStreamIsCapturing(void *stream, int *status) { (void)stream; ANSWER(); *status = state.capture_status; return 0; }

int hipPointerGetAttributes(attributes *found, const void *address)
{
    ANSWER();
    for (size_t i = 0; i < DOUBLE_POINTERS; i++) {
        const struct double_pointer *each = &state.pointers[i];
        if (each->address == NULL || each->address != address) continue;
        found->type = each->type;
        found->device = each->device;
        found->isManaged = each->is_managed;
        return 0;
    }
    return 1;
}

int hipMalloc(void **address, size_t size) { ANSWER(); *address = calloc(1, size); return *address == NULL ? 2 : 0; }
int hipMemcpy(void *to, const void *from, size_t size, int kind) { memcpy(to, from, size); return kind == 1 || kind == 2 ? 0 : 1; }
int hipMemcpyHtoD(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
int hipMemcpyDtoH(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
int hipMemGetInfo(size_t *available, size_t *total) { *available = 4096; *total = 1 << 20; return 0; }
int hipDeviceSynchronize(void) { return 0; }
int hipFree(void *address) { free(address); return 0; }
int hipMemsetAsync(void *address, int byte, size_t size, void *stream)
{
    (void)stream;
    memset(address, byte, size);
    return 0;
}
int hipEventCreateWithFlags(float **event, unsigned flags) { *event = calloc(1, sizeof **event); return (int)flags; }
int hipEventDestroy(float *event) { free(event); return 0; }
int hipEventRecord(float *event, void *stream) { static float time; (void)stream; *event = time += 2.5f; return 0; }
int hipEventSynchronize(float *event) { (void)event; ANSWER(); return 0; }
int hipEventElapsedTime(float *milliseconds, float *start, float *end) { *milliseconds = *end - *start; return 0; }
