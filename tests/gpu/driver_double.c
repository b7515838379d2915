/* Stands in for libcuda where there is no GPU, to test what launch.c asks of a driver: memory is the host's, and a launch
 * computes nothing.
 *
 * The folder $KILN_DOUBLE holds `images`, a line an image that can be loaded (PATH SIZE STATIC_SHARED STACK REGISTERS COUNT
 * and OFFSET SIZE of each parameter; any other is refused with error 209), and `answers`, lines of LAUNCH OFFSET SIZE PATH: the
 * bytes that launch number LAUNCH, or each one for -1, writes to the address at OFFSET of its parameters. Each launch adds a
 * line to `log`, one in a graph when that is replayed: PATH, grid, block, shared memory, attributes as ID:VALUES, and the parameters as hexadecimal digits. With
 * $KILN_DOUBLE_OVERRUN, a launch also writes a byte behind the answer; with $KILN_DOUBLE_MEMORY, there are so many bytes
 * for each allocation. Events are done when they are asked for the fourth time.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char path[512];
    size_t size, count, offsets[64], sizes[64];
    int attributes[9]; /* by number: 1 is static shared memory, 3 the stack, 4 registers, 8 the opt-in */
} image;

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

/* What a stream captures: launches, with their parameters. */
typedef struct {
    size_t count;
    struct {
        configuration config;
        attribute attributes[4];
        image *function;
        size_t size;
        unsigned char parameters[4096];
    } launches[16];
} graph;

typedef struct {
    graph *captured; /* NULL: it does not capture */
} stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread void *current, *below;

static FILE *open_file(const char *name, const char *mode)
{
    char path[1024];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", getenv("KILN_DOUBLE"), name);
    file = fopen(path, mode);
    if (file == NULL) abort();
    return file;
}

/* Bytes of a file, which the caller frees, or NULL. */
static unsigned char *slurp(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *data = malloc(size);
    if (file == NULL || data == NULL || fread(data, 1, size, file) != size) abort();
    fclose(file);
    return data;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal; }
int cuDevicePrimaryCtxRetain(void **context, int device) { static int primary; *context = &primary; return device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return device + (int)flags; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = calloc(1, 1); return (int)flags + device; }
int cuCtxCreate_v4(void **context, void *more, unsigned flags, int device)
{
    return more != NULL ? 1 : cuCtxCreate_v2(context, flags, device);
}
int cuCtxDestroy_v2(void *context) { free(context); return 0; }
int cuCtxSetCurrent(void *context) { current = context; return context == NULL; }
int cuCtxSynchronize(void) { return 0; }

static unsigned long long number_at(const unsigned char *data, size_t size)
{
    unsigned long long number = 0;
    memcpy(&number, data, size);
    return number;
}

static int load_image(image **module, const void *data);

/* Of a fat binary the first image that can be loaded: each has a header with the bytes of that and of the content, and for
 * which capability it is. */
int cuModuleLoadData(image **module, const void *data)
{
    const unsigned char *at = data;
    if (memcmp(data, "\x50\xed\x55\xba", 4) != 0) return load_image(module, data);
    const unsigned char *end = at + 16 + number_at(at + 8, 8);
    for (at += 16; at < end; at += number_at(at + 4, 4) + number_at(at + 8, 8)) {
        if (load_image(module, at + number_at(at + 4, 4)) == 0) {
            (*module)->attributes[5] = (int)number_at(at + 28, 4);
            return 0;
        }
    }
    return 209;
}

static int load_image(image **module, const void *data)
{
    FILE *file = open_file("images", "r");
    image *found = calloc(1, sizeof *found);
    while (fscanf(file, "%511s %zu %d %d %d %zu", found->path, &found->size, &found->attributes[1], &found->attributes[3],
                  &found->attributes[4], &found->count) == 6) {
        unsigned char *bytes = slurp(found->path, found->size);
        int is_same = memcmp(bytes, data, found->size) == 0;
        for (size_t i = 0; i < found->count; i++) {
            if (fscanf(file, "%zu %zu", &found->offsets[i], &found->sizes[i]) != 2) abort();
        }
        free(bytes);
        if (is_same) {
            fclose(file);
            *module = found;
            return 0;
        }
    }
    fclose(file);
    free(found);
    return 209;
}

int cuModuleLoadDataEx(image **module, const void *data, unsigned count, int *options, void **values)
{
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, data);
}

int cuModuleUnload(image *module) { free(module); return 0; }
int cuModuleGetFunction(image **function, image *module, const char *name) { *function = module; return name == NULL; }

int cuFuncGetParamInfo(const image *function, size_t index, size_t *offset, size_t *size)
{
    if (index >= function->count) return 1;
    *offset = function->offsets[index];
    *size = function->sizes[index];
    return 0;
}

int cuFuncGetAttribute(int *value, int number, const image *function) { *value = function->attributes[number]; return 0; }
int cuFuncSetAttribute(image *function, int number, int value) { function->attributes[number] = value; return 0; }

static size_t available_bytes(void)
{
    const char *bytes = getenv("KILN_DOUBLE_MEMORY");
    return bytes != NULL ? strtoull(bytes, NULL, 10) : (size_t)1 << 30;
}

int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
    if (size > available_bytes()) return 2;
    void *memory = aligned_alloc(512, (size + 511) / 512 * 512);
    memcpy(address, &memory, sizeof memory);
    return memory == NULL;
}

static void *pointer(unsigned long long address)
{
    void *memory;
    memcpy(&memory, &address, sizeof memory);
    return memory;
}

int cuMemFree_v2(unsigned long long address) { free(pointer(address)); return 0; }
int cuMemAllocAsync(unsigned long long *address, size_t size, stream *on) { (void)on; return cuMemAlloc_v2(address, size); }
int cuMemFreeAsync(unsigned long long address, stream *on) { (void)on; return cuMemFree_v2(address); }
int cuMemGetInfo_v2(size_t *available, size_t *total) { *available = *total = available_bytes(); return 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { memcpy(pointer(to), from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { memcpy(to, pointer(from), size); return 0; }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t size, const stream *on)
{
    return on != NULL && on->captured != NULL ? 900 : cuMemcpyHtoD_v2(to, from, size);
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t size, const stream *on)
{
    return on != NULL && on->captured != NULL ? 900 : cuMemcpyDtoH_v2(to, from, size);
}

/* What the library asks of every driver: an H100 with one context, whose memory nobody asks about. */
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, (size_t)size, "a double"); return device; }
int cuDeviceGetAttribute(int *value, int number, int device)
{
    static const int values[121] = { [1] = 1024, [10] = 32, [16] = 132, [38] = 50 << 20, [75] = 9, [95] = 1, [97] = 232448, [115] = 1, [120] = 1 };
    *value = values[number];
    return device;
}
int cuGetErrorName(int code, const char **name) { *name = NULL; return code; }
int cuGetErrorString(int code, const char **text) { *text = NULL; return code; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return current == NULL ? 201 : 0; }
int cuCtxPushCurrent_v2(void *context) { below = current; current = context; return context == NULL; }
int cuCtxPopCurrent_v2(void **context) { *context = current; current = below; return 0; }
int cuStreamIsCapturing(const stream *each, int *status) { *status = each != NULL && each->captured != NULL; return 0; }
int cuLibraryLoadData(image **library, const void *data, int *options, void **values, unsigned count, int *own, void **own_values,
                      unsigned own_count)
{
    if (own != NULL || own_values != NULL || own_count != 0) return 1;
    return cuModuleLoadDataEx(library, data, count, options, values);
}
int cuLibraryUnload(image *library) { return cuModuleUnload(library); }
int cuLibraryGetKernel(image **kernel, image *library, const char *name) { return cuModuleGetFunction(kernel, library, name); }
int cuKernelGetFunction(image **function, image *kernel) { *function = kernel; return current == NULL ? 201 : 0; }
int cuKernelSetAttribute(int number, int value, image *kernel, int device)
{
    return device != 0 ? 101 : cuFuncSetAttribute(kernel, number, value);
}
int cuPointerGetAttribute(void *value, int number, unsigned long long address) { return value != NULL && number > 0 && address > 0; }
int cuMemsetD8Async(unsigned long long to, unsigned char byte, size_t size, const stream *on)
{
    memset(pointer(to), byte, size);
    return on != NULL && on->captured != NULL ? 900 : 0;
}
int cuMemsetD8_v2(unsigned long long to, unsigned char byte, size_t size) { return cuMemsetD8Async(to, byte, size, NULL); }
int cuEventCreate(void **event, unsigned flags) { *event = NULL; return flags > 2; }
int cuEventDestroy_v2(void *event) { return event != NULL; }
int cuEventRecord(void *event, const stream *on) { (void)on; return event != NULL; }
int cuStreamWaitEvent(const stream *on, void *event, unsigned flags) { (void)on; return event == NULL ? (int)flags : 1; }
int cuEventQuery(void *event) { static int asked; return event != NULL ? 1 : asked++ < 3 ? 600 : 0; }
int cuEventSynchronize(void *event) { return event != NULL; }
int cuEventElapsedTime(float *time, void *start, void *end) { *time = 0; return start != end; }

static void answer(int launch, const unsigned char *parameters)
{
    FILE *file = open_file("answers", "r");
    int number;
    size_t offset, size;
    char path[512];
    while (fscanf(file, "%d %zu %zu %511s", &number, &offset, &size, path) == 4) {
        unsigned long long address;
        unsigned char *bytes;
        if (number != launch && number != -1) continue;
        memcpy(&address, parameters + offset, sizeof address);
        bytes = slurp(path, size);
        memcpy(pointer(address), bytes, size);
        free(bytes);
        if (getenv("KILN_DOUBLE_OVERRUN") != NULL) memset((char *)pointer(address) + size, 0, 1);
    }
    fclose(file);
}

/* What a launch comes to when it runs. */
static void launch_now(const configuration *config, const image *function, const unsigned char *parameters, size_t size)
{
    static int launches;
    pthread_mutex_lock(&lock);
    FILE *log = open_file("log", "a");
    fprintf(log, "%s %u,%u,%u %u,%u,%u %u ", function->path, config->grid[0], config->grid[1], config->grid[2],
            config->block[0], config->block[1], config->block[2], config->shared);
    for (unsigned i = 0; i < config->count; i++) {
        const attribute *each = &config->attributes[i];
        fprintf(log, "%d:%u,%u,%u;", each->id, each->value[0], each->value[1], each->value[2]);
    }
    fputs("- ", log);
    for (size_t i = 0; i < size; i++) fprintf(log, "%02x", parameters[i]);
    fputc('\n', log);
    fclose(log);
    answer(launches++, parameters);
    pthread_mutex_unlock(&lock);
}

int cuLaunchKernelEx(const configuration *config, image *function, void **values, void **extra)
{
    const stream *on = config->stream;
    unsigned char gathered[4096] = { 0 };
    const unsigned char *parameters = gathered;
    size_t size = 0;
    if (current == NULL) return 201;
    if ((values == NULL) == (extra == NULL)) return 1;
    if (values != NULL) {
        for (size_t i = 0; i < function->count; i++) {
            memcpy(gathered + function->offsets[i], values[i], function->sizes[i]);
            size = function->offsets[i] + function->sizes[i];
        }
    } else {
        if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != NULL) return 1;
        parameters = extra[1];
        size = *(size_t *)extra[3];
        /* As the driver has it: of a cooperative launch with a buffer no graph can be captured. */
        for (unsigned i = 0; i < config->count; i++) {
            if (config->attributes[i].id == 2 && on != NULL && on->captured != NULL) return 1;
        }
    }
    /* As the driver has it: more than 48 KiB want the opt-in. */
    if (config->shared > 48 * 1024 && (unsigned)function->attributes[8] < config->shared) return 1;
    if (on == NULL || on->captured == NULL) {
        launch_now(config, function, parameters, size);
        return 0;
    }
    if (on->captured->count == 16 || config->count > 4 || size > 4096) abort();
    const size_t place = on->captured->count++;
    on->captured->launches[place].config = *config;
    on->captured->launches[place].function = function;
    on->captured->launches[place].size = size;
    memcpy(on->captured->launches[place].parameters, parameters, size);
    for (unsigned i = 0; i < config->count; i++) on->captured->launches[place].attributes[i] = config->attributes[i];
    on->captured->launches[place].config.attributes = on->captured->launches[place].attributes;
    return 0;
}

int cuLaunchKernel(image *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void *on, void **values, void **extra)
{
    const configuration config = { { grid_x, grid_y, grid_z }, { block_x, block_y, block_z }, shared, on, NULL, 0 };
    return cuLaunchKernelEx(&config, function, values, extra);
}

int cuStreamCreate(stream **made, unsigned flags) { *made = calloc(1, sizeof **made); return flags > 1; }
int cuStreamCreateWithPriority(stream **made, unsigned flags, int priority) { return cuStreamCreate(made, flags) + priority; }
int cuStreamDestroy_v2(stream *made) { free(made); return 0; }
int cuStreamSynchronize(const stream *made) { return made != NULL && made->captured != NULL ? 900 : 0; }
int cuStreamBeginCapture_v2(stream *each, int mode) { each->captured = calloc(1, sizeof *each->captured); return mode < 0 || mode > 2; }
int cuStreamEndCapture(stream *each, graph **made) { *made = each->captured; each->captured = NULL; return *made == NULL; }
int cuGraphInstantiateWithFlags(graph **ready, graph *made, unsigned long long flags)
{
    *ready = malloc(sizeof **ready);
    **ready = *made;
    for (size_t i = 0; i < made->count; i++) (*ready)->launches[i].config.attributes = (*ready)->launches[i].attributes;
    return (int)flags;
}
int cuGraphExecDestroy(graph *ready) { free(ready); return 0; }
int cuGraphDestroy(graph *made) { free(made); return 0; }
int cuGraphLaunch(const graph *ready, const stream *on)
{
    for (size_t i = 0; i < ready->count; i++) {
        launch_now(&ready->launches[i].config, ready->launches[i].function, ready->launches[i].parameters, ready->launches[i].size);
    }
    return on == NULL;
}
