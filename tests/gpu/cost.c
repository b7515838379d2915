/* What the library costs a program, beside the driver alone, in one process and in turns.
 *
 *     cost ROUNDS FEW MANY FEW_PIE MANY_PIE
 *
 * The last four are programs that only start: with a library of 10 images and with one of 1,000, linked to a fixed address
 * and position-independent (see gpu_links.py). Prints a
 * line of JSON a figure: `name`, `ours` and `raw` in microseconds (the medians of ROUNDS rounds) and, where there is one,
 * `bar`, which ours / raw should not pass, or `most`, which ours - raw should not pass. Exits with 2 when there is no GPU,
 * and with 1 when a launch fails.
 */
#include "driver.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#include <kernels/kernels.h>

enum { BATCH = 200, SEQUENCE = 15, PER_EVENT = 20, MAX_ROUNDS = 1000, BYTES = 8192 * 2048 * 2 };

extern char **environ;

static int rounds;

static void expect(int status, const char *what)
{
    if (status == 0) return;
    fprintf(stderr, "%s is %d; the library's last error: %s\n", what, status, kernels_last_error()->detail);
    exit(1);
}

#define EXPECT(call) expect(call, #call)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts. */
static double median(double *values)
{
    qsort(values, (size_t)rounds, sizeof *values, compare);
    return rounds % 2 != 0 ? values[rounds / 2] : (values[rounds / 2 - 1] + values[rounds / 2]) / 2;
}

static double ours[MAX_ROUNDS], raw[MAX_ROUNDS];

/* `limit` is "bar", "most" or NULL. */
static void report(const char *name, const char *limit, double value)
{
    printf("{\"name\": \"%s\", \"ours\": %.3f, \"raw\": %.3f", name, median(ours), median(raw));
    if (limit != NULL) printf(", \"%s\": %g", limit, value);
    printf("}\n");
    fflush(stdout);
}

/* -- a launch by the driver alone, all of it prepared */

struct prepared {
    CUfunction function;
    unsigned grid, threads, shared;
    unsigned char buffer[64];
    size_t bytes;
    void *extra[5];
};

static void prepare(struct prepared *to, const struct kernels_variant *variant, const void *args)
{
    struct kernels_handles handles;
    uint32_t grid[3];
    EXPECT(kernels_preload(variant));
    EXPECT(kernels_load(variant, &handles));
    EXPECT(cuKernelGetFunction(&to->function, handles.function));
    EXPECT((int)kernels_variant_grid(variant, args, grid));
    if (variant->buffer_bytes > sizeof to->buffer) exit(1);
    kernels_variant_pack(variant, args, to->buffer);
    to->grid = grid[0];
    to->threads = handles.image->threads;
    to->shared = handles.image->shared_dynamic;
    to->bytes = handles.image->parameter_bytes;
    to->extra[0] = (void *)1; /* CU_LAUNCH_PARAM_BUFFER_POINTER */
    to->extra[1] = to->buffer;
    to->extra[2] = (void *)2; /* CU_LAUNCH_PARAM_BUFFER_SIZE */
    to->extra[3] = &to->bytes;
    to->extra[4] = NULL;
}

static int launch_raw(struct prepared *from, CUstream stream)
{
    return cuLaunchKernel(from->function, from->grid, 1, 1, from->threads, 1, 1, from->shared, stream, NULL, from->extra);
}

static struct kernels_softmax_fp16_args arguments(void *output, void *input, int32_t rows, int32_t columns)
{
    struct kernels_softmax_fp16_args args;
    memset(&args, 0, sizeof args);
    args.output_ptr = output;
    args.input_ptr = input;
    args.input_row_stride = args.output_row_stride = args.n_cols = columns;
    args.n_rows = rows;
    return args;
}

/* -- figures */

typedef int launcher(const struct kernels_softmax_fp16_args *args, struct CUstream_st *stream);

static int launch_alone(const struct kernels_softmax_fp16_args *args, struct CUstream_st *stream)
{
    struct kernels_softmax_fp16_1024_args own;
    memcpy(&own, args, sizeof own);
    return kernels_softmax_fp16_1024_launch(&own, stream);
}

static int launch_group(const struct kernels_softmax_fp16_args *args, struct CUstream_st *stream)
{
    return kernels_softmax_fp16_launch(args, stream);
}

/* The host's part of a launch: batches that fit the driver's queue, ours and raw in turns. */
static void time_launches(const char *name, launcher *launch, const struct kernels_variant *variant,
                          const struct kernels_softmax_fp16_args *args, double bar)
{
    struct prepared prepared;
    prepare(&prepared, variant, args);
    for (int round = -2; round < rounds; round++) { /* the first two are for warmth */
        double times[2] = { 0, 0 };
        for (int i = 0; i < 2; i++) {
            const int is_raw = (i + round) & 1;
            EXPECT(cuCtxSynchronize());
            const double start = now();
            for (int j = 0; j < BATCH; j++) EXPECT(is_raw ? launch_raw(&prepared, NULL) : launch(args, NULL));
            times[is_raw] = (now() - start) / BATCH;
        }
        if (round >= 0) {
            ours[round] = times[0];
            raw[round] = times[1];
        }
    }
    EXPECT(cuCtxSynchronize());
    report(name, "bar", bar);
}

/* From an image to what can be launched. */
static void time_first_use(bool with_launch, const struct kernels_softmax_fp16_args *args)
{
    const struct kernels_variant *variant = kernels_variant_find("softmax_fp16_1024");
    struct prepared prepared;
    struct kernels_handles handles;
    prepare(&prepared, variant, args);
    EXPECT(kernels_load(variant, &handles));
    const struct kernels_image *image = handles.image;
    for (int round = 0; round < rounds; round++) {
        CUlibrary library = NULL;
        CUkernel kernel = NULL;
        EXPECT(cuCtxSynchronize());
        EXPECT(kernels_unload());
        double start = now();
        if (with_launch) EXPECT(launch_alone(args, NULL));
        else EXPECT(kernels_load(variant, &handles));
        ours[round] = now() - start;
        EXPECT(cuCtxSynchronize());
        EXPECT(kernels_unload());
        start = now();
        EXPECT(cuLibraryLoadData(&library, kernels_image_data(image), NULL, NULL, 0, NULL, NULL, 0));
        EXPECT(cuLibraryGetKernel(&kernel, library, kernels_image_entry(image)));
        if (with_launch) {
            prepared.function = (CUfunction)kernel;
            EXPECT(launch_raw(&prepared, NULL));
        }
        raw[round] = now() - start;
        EXPECT(cuCtxSynchronize());
        EXPECT(cuLibraryUnload(library));
    }
    report(with_launch ? "first use of an image, launched" : "first use of an image", "bar", 1.3);
}

static double start_program(const char *path)
{
    char name[] = "start", *const arguments_of[] = { name, NULL };
    pid_t child;
    int status = 0;
    const double start = now();
    EXPECT(posix_spawn(&child, path, NULL, NULL, arguments_of, environ));
    if (waitpid(child, &status, 0) != child || status != 0) expect(status != 0 ? status : 1, path);
    return now() - start;
}

static void time_start(const char *name, const char *few, const char *many)
{
    for (int round = -2; round < rounds; round++) {
        const double one = start_program(few), other = start_program(many);
        if (round < 0) continue;
        raw[round] = one;
        ours[round] = other;
    }
    report(name, "most", 50);
}

static void launch_sequence(const struct kernels_softmax_fp16_args *args, CUstream stream)
{
    for (int i = 0; i < SEQUENCE; i++) EXPECT(kernels_softmax_fp16_launch(args, stream));
}

/* From the first launch to the end of the last: as a graph (ours) and one by one (raw). */
static void time_graph(const struct kernels_softmax_fp16_args *args)
{
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec ready = NULL;
    EXPECT(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch_sequence(args, stream);
    EXPECT(cuStreamSynchronize(stream));
    EXPECT(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_sequence(args, stream);
    EXPECT(cuStreamEndCapture(stream, &graph));
    EXPECT(cuGraphInstantiate(&ready, graph, 0));
    EXPECT(cuGraphLaunch(ready, stream));
    EXPECT(cuStreamSynchronize(stream));
    for (int round = 0; round < rounds; round++) {
        double start = now();
        launch_sequence(args, stream);
        EXPECT(cuStreamSynchronize(stream));
        raw[round] = now() - start;
        start = now();
        EXPECT(cuGraphLaunch(ready, stream));
        EXPECT(cuStreamSynchronize(stream));
        ours[round] = now() - start;
    }
    report("15 launches as a graph, beside a stream", NULL, 0);
    EXPECT(cuGraphExecDestroy(ready));
    EXPECT(cuGraphDestroy(graph));
    EXPECT(cuStreamDestroy(stream));
}

/* The GPU's part, launch behind launch between two events: by group, and by the driver alone. */
static void time_kernel(void *output, void *input, int32_t rows, int32_t columns)
{
    const struct kernels_softmax_fp16_args args = arguments(output, input, rows, columns);
    struct kernels_choice choice;
    struct prepared prepared;
    CUevent start = NULL, end = NULL;
    char name[64];
    EXPECT(kernels_softmax_fp16_choose(&args, &choice));
    prepare(&prepared, choice.variant, &args);
    EXPECT(cuEventCreate(&start, 0));
    EXPECT(cuEventCreate(&end, 0));
    for (int round = -2; round < rounds; round++) {
        for (int is_raw = 0; is_raw < 2; is_raw++) {
            float milliseconds = 0;
            EXPECT(cuEventRecord(start, NULL));
            for (int i = 0; i < PER_EVENT; i++) {
                EXPECT(is_raw ? launch_raw(&prepared, NULL) : kernels_softmax_fp16_launch(&args, NULL));
            }
            EXPECT(cuEventRecord(end, NULL));
            EXPECT(cuEventSynchronize(end));
            EXPECT(cuEventElapsedTime(&milliseconds, start, end));
            if (round >= 0) (is_raw ? raw : ours)[round] = (double)milliseconds * 1e3 / PER_EVENT;
        }
    }
    snprintf(name, sizeof name, "softmax fp16 of %d x %d on the GPU", (int)rows, (int)columns);
    report(name, NULL, 0);
}

int main(int argc, char **argv)
{
    static const int32_t shapes[][2] = { { 8192, 1000 }, { 8192, 2048 }, { 4096, 4096 }, { 1024, 16384 } };
    CUcontext context = NULL;
    CUdeviceptr memory[2];
    if (argc != 6 || !open_driver(&context)) return 2;
    rounds = atoi(argv[1]);
    if (rounds < 1 || rounds > MAX_ROUNDS) return 2;
    unsigned char *zeros = calloc(1, BYTES);
    if (zeros == NULL) return 2;
    for (size_t i = 0; i < 2; i++) {
        EXPECT(cuMemAlloc(&memory[i], BYTES));
        EXPECT(cuMemcpyHtoD(memory[i], zeros, BYTES));
    }
    free(zeros);
    void *output = (void *)(uintptr_t)memory[0], *input = (void *)(uintptr_t)memory[1];
    const struct kernels_softmax_fp16_args small = arguments(output, input, 1, 64), wide = arguments(output, input, 1, 16384);

    time_launches("launch of a variant", launch_alone, kernels_variant_find("softmax_fp16_1024"), &small, 1.05);
    time_launches("launch of a group that takes its first of 5", launch_group, kernels_variant_find("softmax_fp16_1024"), &small, 1.1);
    time_launches("launch of a group that takes its last of 5", launch_group, kernels_variant_find("softmax_fp16_16384"), &wide, 1.1);
    time_first_use(false, &small);
    time_first_use(true, &small);
    time_start("start of a process with 1,000 images, beside one with 10", argv[2], argv[3]);
    time_start("the same, position-independent", argv[4], argv[5]);
    time_graph(&small);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) time_kernel(output, input, shapes[i][0], shapes[i][1]);
    return kernels_unload() == 0 ? 0 : 1;
}
