/* Stands in for libcuda under examples/onnxruntime where there is no GPU: memory is the host's, and the one kernel that it
 * can run, softmax_kernel of fp32, is computed here from the packed arguments, if a launch is what the image is made for.
 *
 * $ORT_DRIVER_LOG is a file to which each call adds a line: `load KIND`, `function NAME`, `opt-in BYTES`,
 * `launch NAME GRID THREADS SHARED ARGUMENT_BYTES`, `unload`. With $ORT_DRIVER_FAILS, the call of that name returns 200.
 */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAD_VALUE = 1, INVALID_IMAGE = 200, NOT_FOUND = 500 };

struct module {
    char name[128]; /* of the function that was asked for */
    int opt_in;     /* bytes of dynamic shared memory */
};

static int note(const char *call, const char *format, ...)
{
    const char *path = getenv("ORT_DRIVER_LOG"), *fails = getenv("ORT_DRIVER_FAILS");
    if (path != NULL) {
        FILE *file = fopen(path, "a");
        va_list values;
        if (file == NULL) abort();
        va_start(values, format);
        fprintf(file, "%s", call);
        vfprintf(file, format, values);
        va_end(values);
        fputc('\n', file);
        fclose(file);
    }
    return fails != NULL && strcmp(fails, call) == 0 ? INVALID_IMAGE : 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal; }
int cuDevicePrimaryCtxRetain(void **context, int device) { static int only; *context = &only; return device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return note("release", " %d", device); }
int cuCtxSetCurrent(void *context) { return context == NULL; }
int cuCtxSynchronize(void) { return 0; }

int cuModuleLoadData(struct module **module, const void *image)
{
    int is_elf = memcmp(image, "\177ELF", 4) == 0;
    *module = calloc(1, sizeof **module);
    if (*module == NULL) abort();
    return note("load", " %s", is_elf ? "cubin" : "ptx");
}

int cuModuleUnload(struct module *module)
{
    free(module);
    return note("unload", "%s", "");
}

int cuModuleGetFunction(struct module **function, struct module *module, const char *name)
{
    snprintf(module->name, sizeof module->name, "%s", name);
    *function = module;
    return note("function", " %s", name);
}

int cuFuncSetAttribute(struct module *function, int attribute, int value)
{
    if (attribute != 8) return BAD_VALUE; /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    function->opt_in = value;
    return note("opt-in", " %d", value);
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = (uint64_t)(uintptr_t)malloc(bytes); return *address == 0; }
int cuMemFree_v2(uint64_t address) { free((void *)(uintptr_t)address); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) { memcpy((void *)(uintptr_t)to, from, bytes); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { memcpy(to, (void *)(uintptr_t)from, bytes); return 0; }

int cuGetErrorName(int error, const char **name)
{
    *name = error == INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_OTHER";
    return 0;
}

struct arguments {
    float *output;
    const float *input;
    int32_t input_row_stride, output_row_stride, n_cols;
    void *global_scratch, *profile_scratch;
};

static void softmax(const struct arguments *given, unsigned rows)
{
    for (unsigned row = 0; row < rows; row++) {
        const float *from = given->input + (int64_t)row * given->input_row_stride;
        float *to = given->output + (int64_t)row * given->output_row_stride, largest = from[0], sum = 0;
        for (int i = 1; i < given->n_cols; i++) largest = fmaxf(largest, from[i]);
        for (int i = 0; i < given->n_cols; i++) sum += expf(from[i] - largest);
        for (int i = 0; i < given->n_cols; i++) to[i] = expf(from[i] - largest) / sum;
    }
}

int cuLaunchKernel(struct module *function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra)
{
    struct arguments given;
    size_t bytes;
    /* CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END */
    if (parameters != NULL || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != NULL) return BAD_VALUE;
    bytes = *(size_t *)extra[3];
    if (note("launch", " %s %u,%u,%u %u,%u,%u %u %zu", function->name, x, y, z, block_x, block_y, block_z, shared, bytes)) {
        return INVALID_IMAGE;
    }
    if (stream != NULL || (shared > 48 * 1024 && function->opt_in < (int)shared)) return BAD_VALUE;
    if (strcmp(function->name, "softmax_kernel") != 0) return 0;
    if (bytes != sizeof given || y != 1 || z != 1) return BAD_VALUE;
    memcpy(&given, extra[1], sizeof given);
    if (given.global_scratch != NULL || given.profile_scratch != NULL) return BAD_VALUE;
    softmax(&given, x);
    return 0;
}
