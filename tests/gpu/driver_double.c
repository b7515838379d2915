/* Stands in for libcuda where there is no GPU, to test what launch.c asks of a driver: memory is the host's, and a launch
 * computes nothing.
 *
 * The folder $KILN_DOUBLE holds `images`, a line an image that can be loaded (PATH SIZE STATIC_SHARED STACK REGISTERS COUNT
 * and OFFSET SIZE of each parameter; any other is refused with error 209), and `answers`, lines of LAUNCH OFFSET SIZE PATH: the
 * bytes that launch number LAUNCH writes to the address at OFFSET of its parameters. Each launch adds a line to `log`:
 * PATH, grid, block, shared memory, attributes as ID:VALUES, and the parameters as hexadecimal digits. With
 * $KILN_DOUBLE_OVERRUN, a launch also writes a byte behind the answer.
 */
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
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = NULL; return device; }
int cuCtxSetCurrent(void *context) { return context != NULL; }
int cuCtxSynchronize(void) { return 0; }

int cuModuleLoadData(image **module, const void *data)
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

int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
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
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { memcpy(pointer(to), from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) { memcpy(to, pointer(from), size); return 0; }

static void answer(int launch, const unsigned char *parameters)
{
    FILE *file = open_file("answers", "r");
    int number;
    size_t offset, size;
    char path[512];
    while (fscanf(file, "%d %zu %zu %511s", &number, &offset, &size, path) == 4) {
        unsigned long long address;
        unsigned char *bytes;
        if (number != launch) continue;
        memcpy(&address, parameters + offset, sizeof address);
        bytes = slurp(path, size);
        memcpy(pointer(address), bytes, size);
        free(bytes);
        if (getenv("KILN_DOUBLE_OVERRUN") != NULL) memset((char *)pointer(address) + size, 0, 1);
    }
    fclose(file);
}

int cuLaunchKernelEx(const configuration *config, const image *function, void **values, void **extra)
{
    static int launches;
    const unsigned char *parameters = extra[1];
    size_t size = *(size_t *)extra[3];
    FILE *log = open_file("log", "a");
    if (values != NULL || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != NULL) return 1;
    /* As the driver has it: more than 48 KiB want the opt-in. */
    if (config->shared > 48 * 1024 && (unsigned)function->attributes[8] < config->shared) return 1;
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
    return 0;
}
