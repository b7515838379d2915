/* Launches softmax by its group: the library picks the variant for the GPU and for the number of columns.
 *
 *     softmax_fp32: softmax_fp32_1024@sm_90a for 1000 columns, largest error 6.0e-08
 *
 * Exits with 1 when a result is wrong, and with 2 when there is no GPU or no image for it. The program allocates memory with
 * the driver that it finds; one that uses CUDA or HIP anyway does so with that.
 *
 * Build and run, from the top of the repository and after `doit`:
 *
 *     cc -std=c99 -I build/include examples/c/softmax.c build/lib/libkernels.a -ldl -lpthread -lm -o build/softmax
 *     build/softmax
 *
 * With -DWITH_NVTX a profile shows which image each launch took: see ranges.h.
 */
#include <kernels/kernels.h>

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_NVTX
#include "ranges.h"
#endif

enum { ROWS = 37 };

/* Memory of the GPU, by whichever driver there is: addresses are numbers to CUDA and pointers to HIP. */
static int (*copy_to_gpu)(void *, const void *, size_t);
static int (*copy_from_gpu)(void *, const void *, size_t);
static void *(*allocate)(size_t);

static int (*cuda_alloc)(unsigned long long *, size_t);
static int (*cuda_copy_to)(unsigned long long, const void *, size_t);
static int (*cuda_copy_from)(void *, unsigned long long, size_t);
static int (*hip_malloc)(void **, size_t);
static int (*hip_memcpy)(void *, const void *, size_t, int);

static void *allocate_cuda(size_t bytes)
{
    unsigned long long address = 0;
    return cuda_alloc(&address, bytes) == 0 ? (void *)(uintptr_t)address : NULL;
}

static int copy_to_cuda(void *to, const void *from, size_t bytes)
{
    return cuda_copy_to((unsigned long long)(uintptr_t)to, from, bytes);
}

static int copy_from_cuda(void *to, const void *from, size_t bytes)
{
    return cuda_copy_from(to, (unsigned long long)(uintptr_t)from, bytes);
}

static void *allocate_hip(size_t bytes)
{
    void *address = NULL;
    return hip_malloc(&address, bytes) == 0 ? address : NULL;
}

static int copy_to_hip(void *to, const void *from, size_t bytes)
{
    return hip_memcpy(to, from, bytes, 1);
}

static int copy_from_hip(void *to, const void *from, size_t bytes)
{
    return hip_memcpy(to, from, bytes, 2);
}

/* Writes the address of a driver's function to a pointer to a function. */
static bool find(void *library, const char *name, void *place)
{
    void *found = dlsym(library, name);
    memcpy(place, &found, sizeof found);
    return found != NULL;
}

/* CUDA with the first GPU's own context; the copies that are used wait for launches on the default stream. */
static bool use_cuda(void)
{
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*set_current)(void *);
    void *context = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (library == NULL || !find(library, "cuInit", &init) || !find(library, "cuDevicePrimaryCtxRetain", &retain)
        || !find(library, "cuCtxSetCurrent", &set_current) || !find(library, "cuMemAlloc_v2", &cuda_alloc)
        || !find(library, "cuMemcpyHtoD_v2", &cuda_copy_to) || !find(library, "cuMemcpyDtoH_v2", &cuda_copy_from)) {
        return false;
    }
    allocate = allocate_cuda;
    copy_to_gpu = copy_to_cuda;
    copy_from_gpu = copy_from_cuda;
    return init(0) == 0 && retain(&context, 0) == 0 && set_current(context) == 0;
}

static bool use_hip(void)
{
    void *library = dlopen("libamdhip64.so", RTLD_LAZY);
    if (library == NULL || !find(library, "hipMalloc", &hip_malloc) || !find(library, "hipMemcpy", &hip_memcpy)) {
        return false;
    }
    allocate = allocate_hip;
    copy_to_gpu = copy_to_hip;
    copy_from_gpu = copy_from_hip;
    return true;
}

/* The largest difference to what double precision gives. */
static double largest_error(const float *input, const float *output, int32_t columns)
{
    double largest = 0;
    for (int32_t row = 0; row < ROWS; row++) {
        const float *in = input + row * columns;
        double top = in[0], sum = 0;
        for (int32_t i = 0; i < columns; i++) {
            top = in[i] > top ? in[i] : top;
        }
        for (int32_t i = 0; i < columns; i++) {
            sum += exp(in[i] - top);
        }
        for (int32_t i = 0; i < columns; i++) {
            const double error = fabs(exp(in[i] - top) / sum - output[row * columns + i]);
            largest = error > largest || isnan(error) ? error : largest;
        }
    }
    return largest;
}

static int fail(const char *what)
{
    const struct kernels_error *error = kernels_last_error();
    fprintf(stderr, "%s: %s\n", what, error->status != 0 ? error->detail : "the driver gave an error");
    return 2;
}

static int run(int32_t columns)
{
    const size_t count = (size_t)ROWS * (size_t)columns, bytes = count * sizeof(float);
    float *input = malloc(bytes), *output = malloc(bytes);
    void *on_gpu = allocate(bytes), *result = allocate(bytes);
    if (input == NULL || output == NULL || on_gpu == NULL || result == NULL) {
        return fail("no memory");
    }
    for (size_t i = 0; i < count; i++) {
        input[i] = (float)(i * 2654435761u % 2000) / 100 - 10;
    }
    if (copy_to_gpu(on_gpu, input, bytes) != 0) {
        return fail("the copy to the GPU");
    }

    const struct kernels_softmax_fp32_args args = {
        .output_ptr = result,
        .input_ptr = on_gpu,
        .input_row_stride = columns,
        .output_row_stride = columns,
        .n_cols = columns,
        .n_rows = ROWS,
    };
    struct kernels_choice choice;
    if (kernels_softmax_fp32_choose(&args, &choice) != 0 || kernels_softmax_fp32_launch(&args, NULL) != 0) {
        return fail("softmax_fp32");
    }

    if (copy_from_gpu(output, result, bytes) != 0) {
        return fail("the copy from the GPU");
    }
    const double error = largest_error(input, output, columns);
    printf("softmax_fp32: %s for %d columns, largest error %.1e\n", kernels_image_id(choice.image), (int)columns, error);
    free(input);
    free(output);
    return error <= 1e-5 ? 0 : 1;
}

int main(void)
{
    if (!use_cuda() && !use_hip()) {
        fputs("there is no driver of a GPU\n", stderr);
        return 2;
    }
#ifdef WITH_NVTX
    kernels_set_launch_hook(&ranges);
#endif
    const int32_t columns[] = { 1000, 4096, 16384 };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const int status = run(columns[i]);
        if (status != 0) {
            return status;
        }
    }
    return kernels_unload() == 0 ? 0 : 2;
}
