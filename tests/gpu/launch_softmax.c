/* Runs softmax images of the library kernels on the first GPU, from the archive alone: no CUDA header, no Python.
 *
 *     launch_softmax JOBS        one job a line: VARIANT TARGET N_ROWS N_COLS STRIDE INPUT OUTPUT
 *
 * INPUT holds N_ROWS x STRIDE elements of the variant's dtype; OUTPUT gets as many. For each job a line goes to standard
 * output: `ok VARIANT TARGET ...`, `refused VARIANT TARGET ERROR` when the driver does not take the image, or `failed ...`.
 * The exit code is 1 when any job failed. Build: cc -I build/include launch_softmax.c build/lib/libkernels.a -ldl
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kernels/kernels.h>

/* The part of the CUDA driver API that is used, as "CUDA Driver API" documents it. */
typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;

static CUresult (*cuInit)(unsigned);
static CUresult (*cuDeviceGet)(CUdevice *, int);
static CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *, CUdevice);
static CUresult (*cuCtxSetCurrent)(CUcontext);
static CUresult (*cuCtxSynchronize)(void);
static CUresult (*cuModuleLoadData)(CUmodule *, const void *);
static CUresult (*cuModuleUnload)(CUmodule);
static CUresult (*cuModuleGetFunction)(CUfunction *, CUmodule, const char *);
static CUresult (*cuFuncGetParamInfo)(CUfunction, size_t, size_t *, size_t *);
static CUresult (*cuFuncGetAttribute)(int *, int, CUfunction);
static CUresult (*cuMemAlloc)(CUdeviceptr *, size_t);
static CUresult (*cuMemFree)(CUdeviceptr);
static CUresult (*cuMemcpyHtoD)(CUdeviceptr, const void *, size_t);
static CUresult (*cuMemcpyDtoH)(void *, CUdeviceptr, size_t);
static CUresult (*cuMemsetD8)(CUdeviceptr, unsigned char, size_t);
static CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  CUstream, void **, void **);

static int load_driver(void)
{
    static const struct {
        const char *name;
        void *slot;
    } symbols[] = {
        { "cuInit", &cuInit },
        { "cuDeviceGet", &cuDeviceGet },
        { "cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain },
        { "cuCtxSetCurrent", &cuCtxSetCurrent },
        { "cuCtxSynchronize", &cuCtxSynchronize },
        { "cuModuleLoadData", &cuModuleLoadData },
        { "cuModuleUnload", &cuModuleUnload },
        { "cuModuleGetFunction", &cuModuleGetFunction },
        { "cuFuncGetParamInfo", &cuFuncGetParamInfo },
        { "cuFuncGetAttribute", &cuFuncGetAttribute },
        { "cuMemAlloc_v2", &cuMemAlloc },
        { "cuMemFree_v2", &cuMemFree },
        { "cuMemcpyHtoD_v2", &cuMemcpyHtoD },
        { "cuMemcpyDtoH_v2", &cuMemcpyDtoH },
        { "cuMemsetD8_v2", &cuMemsetD8 },
        { "cuLaunchKernel", &cuLaunchKernel },
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (found == NULL) {
            fprintf(stderr, "libcuda has no %s\n", symbols[i].name);
            return 1;
        }
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    return 0;
}

/* What every softmax variant takes: their argument structs agree, which the casts below rely on and `launch` checks. */
typedef struct kernels_softmax_fp32_1024_args args;

static bool selects(const struct kernels_image *image, const args *a)
{
    const void *p = a;
    switch (atoi(image->block)) {
    case 1024: return kernels_softmax_fp32_1024_selects(p);
    case 2048: return kernels_softmax_fp32_2048_selects(p);
    case 4096: return kernels_softmax_fp32_4096_selects(p);
    case 8192: return kernels_softmax_fp32_8192_selects(p);
    default: return kernels_softmax_fp32_16384_selects(p);
    }
}

/* The driver's own view of the parameters must be the facts', hidden pointers included. */
static bool parameters_agree(const struct kernels_image *image, CUfunction function)
{
    size_t offset, size;
    for (uint32_t i = 0; i < image->parameter_count; i++) {
        if (cuFuncGetParamInfo(function, i, &offset, &size) != 0) return false;
        if (offset != image->parameters[i].offset || size != image->parameters[i].size) return false;
    }
    return cuFuncGetParamInfo(function, image->parameter_count, &offset, &size) != 0;
}

static bool attributes_agree(const struct kernels_image *image, CUfunction function)
{
    enum { SHARED_SIZE_BYTES = 1, LOCAL_SIZE_BYTES = 3, NUM_REGS = 4 };
    int shared, local, registers;
    if (cuFuncGetAttribute(&shared, SHARED_SIZE_BYTES, function) != 0) return false;
    if (cuFuncGetAttribute(&local, LOCAL_SIZE_BYTES, function) != 0) return false;
    if (cuFuncGetAttribute(&registers, NUM_REGS, function) != 0) return false;
    if ((uint32_t)shared != image->shared_static) return false;
    if (image->kind == KERNELS_KIND_PTX) return true; /* the driver's own compiler chose the rest */
    return registers == image->registers && local == image->stack;
}

/* Returns NULL when all went well, or the name of what did not; `code` is the driver's error. */
static const char *launch(const struct kernels_image *image, CUmodule *module, const args *a, int *code)
{
    CUfunction function;
    uint32_t grid[3];
    unsigned char buffer[kernels_softmax_fp32_1024_buffer_bytes];
    size_t size = image->parameter_bytes;
    void *extra[] = { (void *)1, buffer, (void *)2, &size, (void *)0 }; /* CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END */

    if (!kernels_image_verify(image)) return "verify";
    *code = cuModuleLoadData(module, image->data);
    if (*code != 0) return "refused";
    if ((*code = cuModuleGetFunction(&function, *module, image->entry)) != 0) return "cuModuleGetFunction";
    if (!parameters_agree(image, function)) return "the driver's parameters are others than the facts'";
    if (!attributes_agree(image, function)) return "the driver's attributes are others than the facts'";
    if (!selects(image, a)) return "select";
    if (kernels_softmax_fp32_1024_grid(a, grid) != KERNELS_GRID_OK) return "grid";
    /* Scratch pointers are packed as null, for the images ask for no scratch memory. */
    if (size > sizeof buffer) return "the parameter buffer is larger than the header says";
    kernels_softmax_fp32_1024_pack(a, buffer);
    if (image->global_scratch_bytes != 0 || image->profile_scratch_bytes != 0) return "scratch";
    *code = cuLaunchKernel(function, grid[0], grid[1], grid[2], image->threads, 1, 1, image->shared_dynamic, NULL, NULL,
                           extra);
    if (*code != 0) return "cuLaunchKernel";
    if ((*code = cuCtxSynchronize()) != 0) return "cuCtxSynchronize";
    return NULL;
}

static unsigned char *read_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *data = malloc(size);
    size_t got = file == NULL || data == NULL ? 0 : fread(data, 1, size, file);
    if (file != NULL) fclose(file);
    if (got != size) {
        free(data);
        return NULL;
    }
    return data;
}

static bool write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    bool ok = file != NULL && fwrite(data, 1, size, file) == size;
    return file != NULL && fclose(file) == 0 && ok;
}

static const char *run(const struct kernels_image *image, int rows, int columns, int stride, const char *input,
                       const char *output, int *code)
{
    size_t element = strcmp(image->dtype, "fp32") == 0 ? 4 : 2;
    size_t size = (size_t)rows * (size_t)stride * element;
    CUdeviceptr from = 0, to = 0;
    CUmodule module = NULL;
    unsigned char *data = read_file(input, size);
    const char *failure = "out of memory, or the input file is short";

    *code = 0;
    if (data != NULL && cuMemAlloc(&from, size) == 0 && cuMemAlloc(&to, size) == 0 &&
        cuMemcpyHtoD(from, data, size) == 0 && cuMemsetD8(to, 0xff, size) == 0) {
        args a = { .output_ptr = (void *)(uintptr_t)to,
                   .input_ptr = (void *)(uintptr_t)from,
                   .input_row_stride = stride,
                   .output_row_stride = stride,
                   .n_cols = columns,
                   .n_rows = rows };
        failure = launch(image, &module, &a, code);
        if (failure == NULL && (*code = cuMemcpyDtoH(data, to, size)) != 0) failure = "cuMemcpyDtoH";
        if (failure == NULL && !write_file(output, data, size)) failure = "the output file";
    }
    if (module != NULL) cuModuleUnload(module);
    cuMemFree(from);
    cuMemFree(to);
    free(data);
    return failure;
}

int main(int argc, char **argv)
{
    char variant[128], target[32], input[1024], output[1024];
    int rows, columns, stride, code, failed = 0;
    CUdevice device;
    CUcontext context;
    FILE *jobs = argc == 2 ? fopen(argv[1], "r") : NULL;

    if (jobs == NULL || load_driver() != 0) return 2;
    if (cuInit(0) != 0 || cuDeviceGet(&device, 0) != 0 || cuDevicePrimaryCtxRetain(&context, device) != 0) return 2;
    if (cuCtxSetCurrent(context) != 0) return 2;
    while (fscanf(jobs, "%127s %31s %d %d %d %1023s %1023s", variant, target, &rows, &columns, &stride, input,
                  output) == 7) {
        const struct kernels_image *image = kernels_image_find(variant, target);
        const char *failure = image == NULL ? "no such image" : run(image, rows, columns, stride, input, output, &code);
        if (failure == NULL) {
            printf("ok %s %s %d %d\n", variant, target, rows, columns);
        } else if (strcmp(failure, "refused") == 0) {
            printf("refused %s %s %d\n", variant, target, code);
        } else {
            printf("failed %s %s %d %d: %s (%d)\n", variant, target, rows, columns, failure, image ? code : 0);
            failed = 1;
        }
    }
    fclose(jobs);
    return failed;
}
