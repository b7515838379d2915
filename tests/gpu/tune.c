/* Tunes softmax_fp16 over some shapes on the first NVIDIA GPU, and holds the tuner to what it says.
 *
 *     tune FILE
 *
 * Prints a line a shape with the median of each variant in microseconds, the chosen one in brackets; then what a group's
 * launch costs the host. FILE gets the choices. Exits with 1 when something does not hold, and with 2 when there is no GPU.
 */
#include <kernels/kernels.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_VARIANTS = 16, LAUNCHES = 2000 };

static const struct {
    int32_t rows;
    int32_t columns;
} shapes[] = { { 1, 1000 }, { 37, 2000 }, { 8192, 1000 }, { 8192, 2048 }, { 4096, 4096 }, { 1024, 16384 } };

static int faults;

static bool holds(bool condition, const char *what)
{
    if (!condition) {
        printf("%s does not hold; the last error: %s\n", what, kernels_last_error()->detail);
        faults = 1;
    }
    return condition;
}

#define HOLDS(condition) holds(condition, #condition)

static bool find(void *library, const char *name, void *place)
{
    void *found = library != NULL ? dlsym(library, name) : NULL;
    memcpy(place, &found, sizeof found);
    return found != NULL;
}

static int (*synchronize)(void);

/* The first GPU's own context, current in this thread. */
static bool use_gpu(void)
{
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*set_current)(void *);
    void *context = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    return find(library, "cuInit", &init) && find(library, "cuDevicePrimaryCtxRetain", &retain)
        && find(library, "cuCtxSetCurrent", &set_current) && find(library, "cuCtxSynchronize", &synchronize) && init(0) == 0
        && retain(&context, 0) == 0 && set_current(context) == 0;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* What is measured for one shape, printed; whether what was chosen is the fastest, and a launch takes it. */
static void tune(const struct kernels_softmax_fp16_args *args)
{
    struct kernels_timing timings[MOST_VARIANTS];
    struct kernels_choice choice;
    size_t count = 0;
    const struct kernels_timing *best = NULL;
    if (!HOLDS(kernels_softmax_fp16_tune(args, NULL, timings, MOST_VARIANTS, &count) == 0 && count <= MOST_VARIANTS)) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (timings[i].status == 0 && (best == NULL || timings[i].nanoseconds < best->nanoseconds)) {
            best = &timings[i];
        }
    }
    printf("%6d x %5d:", (int)args->n_rows, (int)args->n_cols);
    for (size_t i = 0; i < count; i++) {
        const bool is_best = &timings[i] == best;
        if (timings[i].status == 0) {
            HOLDS(timings[i].samples == 15 && timings[i].fastest > 0 && timings[i].fastest <= timings[i].nanoseconds);
            printf(" %s%s %.1f%s", is_best ? "[" : "", kernels_variant_block(timings[i].variant), (double)timings[i].nanoseconds / 1e3,
                is_best ? "]" : "");
        } else {
            HOLDS(timings[i].status == KERNELS_ERROR_NOT_SELECTED);
        }
    }
    printf("\n");
    HOLDS(best != NULL && kernels_softmax_fp16_choose(args, &choice) == 0 && choice.variant == best->variant
        && choice.image == best->image);
    HOLDS(kernels_softmax_fp16_launch(args, NULL) == 0 && synchronize() == 0);
}

/* Microseconds of the host for a launch: the least of some rounds, since others work on the machine too. */
static double cost(const struct kernels_softmax_fp16_args *args, const struct kernels_variant *variant)
{
    double least = 1;
    for (int round = 0; round < 5; round++) {
        const double start = now();
        for (int i = 0; i < LAUNCHES / 5; i++) {
            const int status = variant != NULL ? kernels_launch_variant(variant, args, NULL)
                                               : kernels_softmax_fp16_launch(args, NULL);
            if (status != 0) {
                HOLDS(status == 0);
                return 0;
            }
        }
        const double each = (now() - start) / (LAUNCHES / 5);
        least = each < least ? each : least;
        HOLDS(synchronize() == 0);
    }
    return least * 1e6;
}

int main(int argc, char **argv)
{
    struct kernels_device device;
    struct kernels_choice choice;
    void *memory[2] = { NULL, NULL };
    const size_t elements = (size_t)8192 * 2048; /* of the largest shape */
    if (argc != 2 || !use_gpu() || kernels_describe_device(-1, &device) != 0) {
        fprintf(stderr, "there is no GPU, or no file to write choices to: %s\n", kernels_last_error()->detail);
        return 2;
    }
    const struct kernels_driver *driver = kernels_cuda_driver();
    for (size_t i = 0; i < 2; i++) {
        if (driver->allocate(driver->user, 2 * elements, &memory[i]) != 0
            || driver->fill(driver->user, memory[i], 2 * elements, NULL) != 0) {
            return 2;
        }
    }
    printf("softmax_fp16 on %s, rows x columns: block and microseconds of each variant\n", device.name);
    struct kernels_softmax_fp16_args args;
    memset(&args, 0, sizeof args);
    args.output_ptr = memory[0];
    args.input_ptr = memory[1];
    HOLDS(kernels_enable_tuner(KERNELS_TUNER_USE, NULL) == 0);
    const size_t count = sizeof shapes / sizeof *shapes;
    for (size_t i = 0; i < count; i++) {
        args.n_rows = shapes[i].rows;
        args.n_cols = args.input_row_stride = args.output_row_stride = shapes[i].columns;
        tune(&args);
    }
    HOLDS(kernels_choice_count() == count);
    HOLDS(kernels_save_choices(argv[1]) == 0);
    /* What was read is what was written, and holds for these images. */
    struct kernels_choices_report report;
    memset(&report, 0, sizeof report);
    HOLDS(kernels_softmax_fp16_choose(&args, &choice) == 0);
    const struct kernels_variant *chosen = choice.variant;
    kernels_forget_choices();
    HOLDS(kernels_load_choices(argv[1], &report) == 0 && report.taken == count && report.bad == 0 && report.foreign == 0);
    HOLDS(kernels_softmax_fp16_choose(&args, &choice) == 0 && choice.variant == chosen);
    HOLDS(kernels_choice_count() == count);
    /* A bucket that is new is measured by its first launch. */
    args.n_rows = 2;
    HOLDS(kernels_enable_tuner(KERNELS_TUNER_TUNE, NULL) == 0);
    HOLDS(kernels_softmax_fp16_launch(&args, NULL) == 0 && kernels_choice_count() == count + 1);
    /* The host's part of a launch, of the smallest kernel there is. */
    args.n_rows = 1;
    args.n_cols = 64;
    HOLDS(kernels_enable_tuner(KERNELS_TUNER_OFF, NULL) == 0);
    HOLDS(kernels_softmax_fp16_choose(&args, &choice) == 0);
    const double alone = cost(&args, choice.variant), off = cost(&args, NULL);
    HOLDS(kernels_softmax_fp16_tune(&args, NULL, NULL, 0, NULL) == 0);
    HOLDS(kernels_enable_tuner(KERNELS_TUNER_USE, NULL) == 0);
    const double on = cost(&args, NULL);
    printf("a launch on the host: %.3f us of one variant, %.3f us of the group, %.3f us with the tuner on\n", alone, off, on);
    HOLDS(kernels_unload() == 0);
    return faults;
}
