/* Captures 15 launches in a CUDA graph and replays it: five times RMS norm, layer norm and softmax of a tensor, each of what
 * the one before wrote.
 *
 *     15 launches: 61.3 us on a stream, 23.0 us as a graph
 *
 * Exits with 1 when the graph writes other bytes than the stream did, and with 2 when there is no GPU of NVIDIA or no image
 * for it.
 *
 * Build and run, from the top of the repository and after `doit`:
 *
 *     cc -std=c99 -D_POSIX_C_SOURCE=200809L -I build/include examples/c/graph.c build/lib/libkernels.a -ldl -lpthread \
 *         -o build/graph
 *     build/graph
 */
#include <kernels/kernels.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 37, COLUMNS = 1000, LAYERS = 5, TIMES = 50, COUNT = ROWS * COLUMNS };

/* What a program with CUDA's header has anyway. */
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
static int (*cuMemAlloc)(unsigned long long *, size_t);
static int (*cuMemcpyHtoD)(unsigned long long, const void *, size_t);
static int (*cuMemcpyDtoH)(void *, unsigned long long, size_t);
static int (*cuStreamCreate)(struct CUstream_st **, unsigned);
static int (*cuStreamSynchronize)(struct CUstream_st *);
static int (*cuStreamBeginCapture)(struct CUstream_st *, int);
static int (*cuStreamEndCapture)(struct CUstream_st *, CUgraph *);
static int (*cuGraphInstantiate)(CUgraphExec *, CUgraph, unsigned long long);
static int (*cuGraphLaunch)(CUgraphExec, struct CUstream_st *);
static int (*cuGraphExecDestroy)(CUgraphExec);
static int (*cuGraphDestroy)(CUgraph);

/* Writes the address of a driver's function to a pointer to a function. */
static bool find(void *library, const char *name, void *place)
{
    void *found = dlsym(library, name);
    memcpy(place, &found, sizeof found);
    return found != NULL;
}

/* CUDA, with the first GPU's own context. */
static bool use_cuda(void)
{
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*set_current)(void *);
    void *context = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    return library != NULL && find(library, "cuInit", &init) && find(library, "cuDevicePrimaryCtxRetain", &retain)
        && find(library, "cuCtxSetCurrent", &set_current) && find(library, "cuMemAlloc_v2", &cuMemAlloc)
        && find(library, "cuMemcpyHtoD_v2", &cuMemcpyHtoD) && find(library, "cuMemcpyDtoH_v2", &cuMemcpyDtoH)
        && find(library, "cuStreamCreate", &cuStreamCreate) && find(library, "cuStreamSynchronize", &cuStreamSynchronize)
        && find(library, "cuStreamBeginCapture_v2", &cuStreamBeginCapture)
        && find(library, "cuStreamEndCapture", &cuStreamEndCapture)
        && find(library, "cuGraphInstantiateWithFlags", &cuGraphInstantiate) && find(library, "cuGraphLaunch", &cuGraphLaunch)
        && find(library, "cuGraphExecDestroy", &cuGraphExecDestroy) && find(library, "cuGraphDestroy", &cuGraphDestroy)
        && init(0) == 0 && retain(&context, 0) == 0 && set_current(context) == 0;
}

static void check(int status, const char *what)
{
    if (status != 0) {
        const struct kernels_error *error = kernels_last_error();
        fprintf(stderr, "%s: %s\n", what, error->status == status ? error->detail : kernels_status_text(status));
        exit(2);
    }
}

#define CHECK(call) check(call, #call)

/* What the launches read and write, on the GPU. */
struct tensors {
    void *x, *y;                  /* ROWS x COLUMNS each */
    void *weight, *bias;          /* COLUMNS */
    void *mean, *rstd;            /* ROWS */
};

static void *allocate(size_t count)
{
    unsigned long long address = 0;
    CHECK(cuMemAlloc(&address, count * sizeof(float)));
    return (void *)(uintptr_t)address;
}

static void copy_to_gpu(void *to, const float *from, size_t count)
{
    CHECK(cuMemcpyHtoD((unsigned long long)(uintptr_t)to, from, count * sizeof(float)));
}

/* x -> y -> x -> y, and the last of five writes y. */
static void launch_all(const struct tensors *on, struct CUstream_st *stream)
{
    void *from = on->x, *to = on->y;
    for (int layer = 0; layer < LAYERS; layer++) {
        const struct kernels_rms_norm_fp32_args rms_norm = {
            .output_ptr = to,
            .input_ptr = from,
            .weight_ptr = on->weight,
            .input_row_stride = COLUMNS,
            .output_row_stride = COLUMNS,
            .n_cols = COLUMNS,
            .eps = 1e-5f,
            .n_rows = ROWS,
        };
        const struct kernels_layer_norm_fp32_args layer_norm = {
            .output_ptr = from,
            .mean_ptr = on->mean,
            .rstd_ptr = on->rstd,
            .input_ptr = to,
            .weight_ptr = on->weight,
            .bias_ptr = on->bias,
            .input_row_stride = COLUMNS,
            .output_row_stride = COLUMNS,
            .n_cols = COLUMNS,
            .eps = 1e-5f,
            .n_rows = ROWS,
        };
        const struct kernels_softmax_fp32_args softmax = {
            .output_ptr = to,
            .input_ptr = from,
            .input_row_stride = COLUMNS,
            .output_row_stride = COLUMNS,
            .n_cols = COLUMNS,
            .n_rows = ROWS,
        };
        CHECK(kernels_rms_norm_fp32_launch(&rms_norm, stream));
        CHECK(kernels_layer_norm_fp32_launch(&layer_norm, stream));
        CHECK(kernels_softmax_fp32_launch(&softmax, stream));
        void *const last = to;
        to = from;
        from = last;
    }
}

/* Loads what a capture may not load, and captures; nothing is launched. */
static CUgraphExec capture(const struct tensors *on, struct CUstream_st *stream)
{
    CUgraph graph = NULL;
    CUgraphExec ready = NULL;
    CHECK(kernels_preload_group(kernels_rms_norm_for(KERNELS_DTYPE_FP32)));
    CHECK(kernels_preload_group(kernels_layer_norm_for(KERNELS_DTYPE_FP32)));
    CHECK(kernels_preload_group(kernels_softmax_for(KERNELS_DTYPE_FP32)));
    CHECK(cuStreamBeginCapture(stream, 0));
    launch_all(on, stream);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&ready, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return ready;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* Microseconds from the first launch to the end of the last, of the fastest of some times. */
static double run(const struct tensors *on, CUgraphExec ready, struct CUstream_st *stream, int times)
{
    double least = 1e9;
    for (int i = 0; i < times; i++) {
        const double start = now();
        if (ready != NULL) {
            CHECK(cuGraphLaunch(ready, stream));
        } else {
            launch_all(on, stream);
        }
        CHECK(cuStreamSynchronize(stream));
        least = now() - start < least ? now() - start : least;
    }
    return least;
}

int main(int argc, char **argv)
{
    static float input[COUNT], weight[COLUMNS], bias[COLUMNS], of_stream[COUNT], of_graph[COUNT];
    const int times = argc > 1 ? atoi(argv[1]) : TIMES;
    struct CUstream_st *stream = NULL;
    if (!use_cuda()) {
        fputs("there is no driver of a GPU\n", stderr);
        return 2;
    }
    for (size_t i = 0; i < COUNT; i++) {
        input[i] = (float)(i * 2654435761u % 2000) / 100 - 10;
    }
    for (size_t i = 0; i < COLUMNS; i++) {
        weight[i] = 1 + (float)(i % 7) / 10;
        bias[i] = (float)(i % 5) / 10;
    }
    const struct tensors on = { allocate(COUNT), allocate(COUNT), allocate(COLUMNS), allocate(COLUMNS), allocate(ROWS),
        allocate(ROWS) };
    copy_to_gpu(on.weight, weight, COLUMNS);
    copy_to_gpu(on.bias, bias, COLUMNS);
    CHECK(cuStreamCreate(&stream, 1)); /* CU_STREAM_NON_BLOCKING */

    CUgraphExec ready = capture(&on, stream);
    copy_to_gpu(on.x, input, COUNT);
    run(&on, NULL, stream, 1);
    CHECK(cuMemcpyDtoH(of_stream, (unsigned long long)(uintptr_t)on.y, sizeof of_stream));
    copy_to_gpu(on.x, input, COUNT);
    run(&on, ready, stream, 1);
    CHECK(cuMemcpyDtoH(of_graph, (unsigned long long)(uintptr_t)on.y, sizeof of_graph));

    const double alone = run(&on, NULL, stream, times), together = run(&on, ready, stream, times);
    printf("15 launches: %.1f us on a stream, %.1f us as a graph\n", alone, together);
    CHECK(cuGraphExecDestroy(ready)); /* before the functions that it launches */
    CHECK(kernels_unload());
    return memcmp(of_stream, of_graph, sizeof of_graph) == 0 ? 0 : 1;
}
