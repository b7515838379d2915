/* The tuner and its files against a driver that computes nothing: `tune_cases CASE` ends with 0 when CASE holds. The cases
 * have the working folder to themselves. Launches take the time that a case gives them, and events 2.5 ms.
 */
#include "cases.h"
#include "choices.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- memory that runs out */

static long allocations_left = -1; /* below 0: there is no end */
void *__real_calloc(size_t number, size_t size);
void *__real_malloc(size_t size);
void *__real_realloc(void *memory, size_t size);
static bool is_out(void) { return allocations_left >= 0 && allocations_left-- == 0; }
void *__wrap_calloc(size_t number, size_t size) { return is_out() ? NULL : __real_calloc(number, size); }
void *__wrap_malloc(size_t size) { return is_out() ? NULL : __real_malloc(size); }
void *__wrap_realloc(void *memory, size_t size) { return is_out() ? NULL : __real_realloc(memory, size); }

/* -- what takes how long */

static void take(const char *image, const float *milliseconds, size_t number)
{
    for (size_t i = 0; i < DOUBLE_POINTERS; i++) {
        if (gpu->durations[i].text == NULL || strcmp(gpu->durations[i].text, image) == 0) {
            gpu->durations[i] = (struct double_duration) { image, milliseconds, number, 0 };
            return;
        }
    }
}

#define TAKES(image, ...) \
    do { \
        static const float numbers[] = { __VA_ARGS__ }; \
        take(image, numbers, sizeof numbers / sizeof *numbers); \
    } while (0)

static void begin(void)
{
    use_cuda();
    aligned_90a.sha256[0] = 0xa1;
    any_90a.sha256[31] = 0xb2;
    TAKES("aligned@sm_90a", 5);
    TAKES("any@sm_90a", 3);
}

static struct kiln_tune_options quick(void)
{
    struct kiln_tune_options options;
    memset(&options, 0, sizeof options);
    options.struct_bytes = sizeof options;
    options.stream = STREAM;
    options.warmups = 1;
    options.samples = 5;
    options.milliseconds = 60000;
    return options;
}

static const struct kiln_variant *chosen(const struct kiln_group *group, struct args args)
{
    struct kiln_choice choice = { NULL, NULL, { 0, 0, 0 } };
    CHECK(kiln_choose(group, &args, &choice) == 0);
    return choice.variant;
}

static struct args with(int32_t n, int32_t rows)
{
    const struct args args = { (void *)0x7000, n, rows };
    return args;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static const char *read_file(const char *path)
{
    static char text[20000];
    FILE *file = fopen(path, "r");
    const size_t size = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    text[size] = '\0';
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

#define DEVICE "NVIDIA_H100__80_GB_"
#define ANY_SHA "00000000000000000000000000000000000000000000000000000000000000b2"
#define ALIGNED_SHA "a100000000000000000000000000000000000000000000000000000000000000"
#define LINE(group, device, shape, variant, sha, time) \
    "library=kiln group=" group " device=" device " shape=" shape " variant=" variant " target=sm_90a sha256=" sha \
    " nanoseconds=" time "\n"

/* -- cases */

static void measured(void)
{
    struct kiln_timing timings[2];
    size_t number = 9;
    begin();
    const struct args args = good();
    const struct kiln_tune_options options = quick();
    CHECK(kiln_tune(&both, &args, &options, timings, 2, &number) == 0);
    CHECK(number == 2 && timings[0].variant == &aligned && timings[1].variant == &any);
    CHECK(timings[0].image == &aligned_90a && timings[0].status == 0 && timings[0].samples == 5);
    CHECK(timings[0].nanoseconds == 7500000 && timings[1].nanoseconds == 5500000 && timings[1].fastest == 5500000);
    const char *log = asked();
    CHECK(count(log, "launch aligned") == 6 && count(log, "launch any") == 6);
    CHECK(count(log, "fill 104857600\n") == 10); /* twice the L2 of the device */
    CHECK(strstr(log, "launch any") < strstr(strstr(log, "fill") + 1, "fill")); /* in rounds */
    CHECK(strstr(log, "shared 16 stream 0x51") != NULL && strstr(log, "stream (nil)") == NULL);
    CHECK(kiln_choice_count() == 1);
    /* Off as it is, it changes nothing. */
    CHECK(chosen(&both, args) == &aligned);
    CHECK(kiln_enable_tuner(KILN_TUNER_USE, NULL) == 0);
    CHECK(chosen(&both, args) == &any);
    CHECK(chosen(&both, with(513, 3)) == &any && chosen(&both, with(1024, 4)) == &any);
    CHECK(chosen(&both, with(512, 4)) == &aligned && chosen(&both, with(1000, 5)) == &aligned
        && chosen(&both, with(1000, 2)) == &aligned);
    asked();
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    CHECK(is_asked("launch any@sm_90a" PLAIN));
    CHECK(kiln_enable_tuner(KILN_TUNER_OFF, NULL) == 0);
    CHECK(chosen(&both, args) == &aligned);
    /* With room for one timing, and none. */
    timings[1].variant = NULL;
    CHECK(kiln_tune(&both, &args, &options, timings, 1, &number) == 0 && number == 2 && timings[1].variant == NULL);
    CHECK(kiln_tune(&both, &args, &options, NULL, 0, NULL) == 0);
    CHECK(kiln_choice_count() == 1);
    kiln_forget_choices();
    CHECK(kiln_choice_count() == 0);
    struct kiln_tune_options only = options;
    only.only_measure = true;
    CHECK(kiln_tune(&both, &args, &only, NULL, 0, NULL) == 0 && kiln_choice_count() == 0);
    CHECK(kiln_unload() == 0);
}

/* One slow sample does not decide, and the default is 3 launches before and 15 samples. */
static void median(void)
{
    struct kiln_timing timings[2];
    begin();
    const struct args args = good();
    struct kiln_tune_options options = quick();
    TAKES("aligned@sm_90a", 50, 3, 100, 3, 2, 3);
    TAKES("any@sm_90a", 50, 4, 4, 4, 4, 4);
    CHECK(kiln_tune(&both, &args, &options, timings, 2, NULL) == 0);
    CHECK(timings[0].nanoseconds == 5500000 && timings[0].fastest == 4500000 && timings[1].nanoseconds == 6500000);
    options.samples = 4;
    TAKES("aligned@sm_90a", 50, 9, 4, 2, 1);
    CHECK(kiln_tune(&both, &args, &options, timings, 2, NULL) == 0);
    CHECK(timings[0].nanoseconds == 5500000);
    asked();
    CHECK(kiln_tune(&both, &args, NULL, timings, 2, NULL) == 0);
    CHECK(timings[0].samples == 15 && count(asked(), "launch aligned") == 18);
}

static void warm(void)
{
    struct kiln_timing timings[2];
    begin();
    const struct args args = good();
    struct kiln_tune_options options = quick();
    options.keep_cache = true;
    CHECK(kiln_tune(&both, &args, &options, timings, 2, NULL) == 0);
    const char *log = asked();
    CHECK(count(log, "fill") == 0 && count(log, "launch any") == 101); /* 20 launches a sample */
    CHECK(timings[0].nanoseconds == 5125000 && timings[1].nanoseconds == 3125000);
}

static void failing_candidates(void)
{
    struct kiln_timing timings[2];
    begin();
    struct args args = good();
    const struct kiln_tune_options options = quick();
    gpu->failing_image = "any@sm_90a";
    gpu->code = 1;
    CHECK(kiln_tune(&both, &args, &options, timings, 2, NULL) == 0);
    CHECK(timings[0].status == 0 && timings[1].status == 1 && timings[1].samples == 0 && timings[1].nanoseconds == 0);
    kiln_enable_tuner(KILN_TUNER_USE, NULL);
    CHECK(chosen(&both, args) == &aligned && kiln_choice_count() == 1);
    args.x = (void *)0x7001;
    FAILS(1, kiln_tune(&both, &args, &options, timings, 2, NULL));
    SAYS("no variant of both could be timed; of any, status 1: something went wrong");
    CHECK(timings[0].status == KILN_ERROR_PROMISE && timings[0].image == NULL);
    gpu->failing_image = NULL;
    /* The chosen one cannot serve the call, and the other does. */
    CHECK(chosen(&both, args) == &any);
    args.rows = -1;
    FAILS(KILN_ERROR_PROMISE, kiln_tune(&both, &args, &options, timings, 2, NULL));
    CHECK(timings[1].status == KILN_ERROR_GRID_OUT_OF_RANGE);
    args = good();
    args.n = 2000;
    FAILS(KILN_ERROR_NOT_SELECTED, kiln_tune(&narrow, &args, &options, timings, 2, NULL));
    gpu->failing = "cuEventSynchronize";
    gpu->code = 700;
    FAILS(700, kiln_tune(&both, &args, &options, timings, 2, NULL));
    SAYS("while variants were timed");
    CHECK(timings[0].status == KILN_ERROR_NOT_SELECTED && timings[1].status == 700);
    gpu->failing = "cuEventRecord";
    gpu->code = 2;
    FAILS(2, kiln_tune(&both, &args, &options, timings, 2, NULL));
    gpu->failing = "cuEventCreate";
    FAILS(2, kiln_tune(&both, &args, &options, timings, 2, NULL));
    gpu->failing = "cuMemsetD8Async";
    FAILS(2, kiln_tune(&both, &args, &options, timings, 2, NULL));
    gpu->failing = "cuMemAlloc_v2";
    FAILS(2, kiln_tune(&both, &args, &options, timings, 2, NULL));
    SAYS("keep_cache does without");
    gpu->failing = "cuStreamIsCapturing";
    FAILS(2, kiln_tune(&both, &args, &options, timings, 2, NULL));
    gpu->failing = NULL;
    gpu->capture_status = 1;
    FAILS(KILN_ERROR_CAPTURING, kiln_tune(&both, &args, &options, timings, 2, NULL));
    gpu->capture_status = 0;
    CHECK(kiln_tune(&both, &args, &options, timings, 2, NULL) == 0);
    CHECK(kiln_unload() == 0 && kiln_use_driver(NULL) == 0);
    gpu->capability[0] = 70;
    args = good();
    FAILS(KILN_ERROR_NO_IMAGE, kiln_tune(&both, &args, &options, timings, 2, NULL));
}

static void refused_calls(void)
{
    struct args args = good();
    struct kiln_tune_options options = quick();
    size_t number = 9;
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_tune(NULL, &args, NULL, NULL, 0, &number));
    CHECK(number == 0);
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_tune(&both, NULL, NULL, NULL, 0, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_tune(&mixed, &args, NULL, NULL, 0, NULL));
    SAYS("the variants of mixed take different argument structs");
    options.struct_bytes--;
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_tune(&both, &args, &options, NULL, 0, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_enable_tuner(KILN_TUNER_USE, &options));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_enable_tuner((enum kiln_tuner)7, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_load_choices(NULL, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_save_choices(NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_merge_choices("a", NULL, "b", NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_describe_shape(&both, &args, NULL, 0));
    /* An empty grid asks no driver, with the tuner on as well. */
    args.rows = 0;
    CHECK(kiln_enable_tuner(KILN_TUNER_TUNE, NULL) == 0);
    CHECK(kiln_launch_group(&both, &args, NULL) == 0);
    CHECK(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) == NULL);
    begin();
    CHECK(kiln_tune(&both, &args, NULL, NULL, 0, &number) == 0 && number == 0 && kiln_choice_count() == 0);
    set_context(NULL);
    args.rows = 4;
    FAILS(KILN_ERROR_NO_CONTEXT, kiln_launch_group(&both, &args, NULL));
}

static size_t resets;
static int reset_outcome;
static int count_resets(void *user, const struct kiln_group *group, const void *args, struct CUstream_st *stream)
{
    CHECK(user == &resets && kiln_group_variants(group)[0] != NULL && args != NULL && stream == STREAM);
    resets++;
    return reset_outcome;
}

struct pair {
    void *to;
    void *from;
};

static enum kiln_grid_status one_block(const void *args, uint32_t grid[3])
{
    (void)args;
    return kiln_grid_from(1, 1, 1, grid);
}

static struct image_block pair_90a;
static struct variant_block pair;
static struct group_block pairs_block;
#define pairs pairs_block.record
static const struct kiln_image *const pair_images[] = { &pair_90a.record };
static const struct kiln_variant *const pair_variants[] = { &pair.record };
static struct kiln_cache pair_cache;
static struct kiln_tuned pairs_tuned;

__attribute__((constructor)) static void make_pairs(void)
{
    make_image(&pair_90a, "pair", "sm_90a", KILN_KIND_CUBIN);
    MAKE_VARIANT(&pair, "pair", "pairs", "", pair_images, &pair_cache, one_block, always, wants_nothing);
    add_argument(&pair, "to", "*fp32", 0, 8, 0, false);
    add_argument(&pair, "from", "*fp32", 8, 8, 0, false);
    make_group(&pairs_block, "pairs", pair_variants, 1, &pairs_tuned);
}

/* What a launch has changed is put in order before the next one; without that, one address twice is refused. */
static void reset(void)
{
    const struct pair in_place = { (void *)0x7000, (void *)0x7000 }, apart = { (void *)0x7000, (void *)0x8000 };
    const struct pair nowhere = { NULL, NULL };
    begin();
    struct kiln_tune_options options = quick();
    CHECK(kiln_tune(&pairs, &apart, &options, NULL, 0, NULL) == 0);
    CHECK(kiln_tune(&pairs, &nowhere, &options, NULL, 0, NULL) == 0);
    asked();
    FAILS(KILN_ERROR_IN_PLACE, kiln_tune(&pairs, &in_place, &options, NULL, 0, NULL));
    SAYS("to and from have one address");
    CHECK(count(asked(), "launch") == 0);
    options.reset = count_resets;
    options.user = &resets;
    CHECK(kiln_tune(&pairs, &in_place, &options, NULL, 0, NULL) == 0);
    CHECK(resets == 6 && count(asked(), "launch") == 6);
    options.keep_cache = true;
    CHECK(kiln_tune(&pairs, &in_place, &options, NULL, 0, NULL) == 0);
    CHECK(resets == 12 && count(asked(), "launch") == 6); /* one launch a sample */
    reset_outcome = 3;
    FAILS(KILN_ERROR_NOT_MEASURED, kiln_tune(&pairs, &in_place, &options, NULL, 0, NULL));
    SAYS("the reset function says 3 for pairs");
    CHECK(resets == 13 && count(asked(), "launch") == 0);
    /* A launch that measures has its memory put in order behind that. */
    kiln_forget_choices();
    reset_outcome = 0;
    resets = 0;
    CHECK(kiln_enable_tuner(KILN_TUNER_TUNE, &options) == 0);
    CHECK(kiln_launch_group(&pairs, &in_place, STREAM) == 0);
    CHECK(resets == 7 && count(asked(), "launch") == 7 && kiln_choice_count() == 1);
    CHECK(kiln_launch_group(&pairs, &in_place, STREAM) == 0);
    CHECK(resets == 7 && count(asked(), "launch") == 1);
    kiln_forget_choices();
    options.reset = NULL;
    CHECK(kiln_enable_tuner(KILN_TUNER_TUNE, &options) == 0);
    CHECK(kiln_launch_group(&pairs, &in_place, STREAM) == 0);
    CHECK(count(asked(), "launch") == 1 && kiln_choice_count() == 0);
}

static int sleep_long(void *user, const struct kiln_group *group, const void *args, struct CUstream_st *stream)
{
    (void)user;
    (void)group;
    (void)args;
    (void)stream;
    usleep(3000);
    return 0;
}

static void out_of_time(void)
{
    struct kiln_timing timings[2];
    begin();
    const struct args args = good();
    struct kiln_tune_options options = quick();
    options.milliseconds = 1;
    options.reset = sleep_long;
    CHECK(kiln_tune(&both, &args, &options, timings, 2, NULL) == 0);
    CHECK(timings[0].status == 0 && timings[0].samples == 1 && timings[0].nanoseconds == 7500000);
    CHECK(timings[1].status == KILN_ERROR_NOT_MEASURED && timings[1].image == &any_90a);
    CHECK(kiln_choice_count() == 0); /* what is fastest of some is no choice */
    options.milliseconds = 20;
    options.samples = 1000;
    CHECK(kiln_tune(&both, &args, &options, timings, 2, NULL) == 0);
    CHECK(timings[0].samples >= 1 && timings[0].samples < 10 && timings[1].samples >= 1 && kiln_choice_count() == 1);
}

static void first_use(void)
{
    begin();
    const struct args args = good();
    struct kiln_tune_options options = quick();
    options.stream = NULL; /* the launch's own is taken */
    CHECK(kiln_enable_tuner(KILN_TUNER_TUNE, &options) == 0);
    CHECK(chosen(&both, args) == &aligned); /* asking measures nothing */
    CHECK(count(asked(), "launch") == 0);
    gpu->capture_status = 1;
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    CHECK(is_asked("load aligned@sm_90a\nlaunch aligned@sm_90a" PLAIN));
    gpu->capture_status = 0;
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    const char *log = asked();
    CHECK(count(log, "launch aligned") == 6 && count(log, "launch any") == 7 && strstr(log, "stream (nil)") == NULL);
    CHECK(chosen(&both, args) == &any);
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    CHECK(is_asked("launch any@sm_90a" PLAIN));
    /* Another bucket, whose measurement fails: the launch does not, and it is not tried again. */
    struct args other = good();
    other.n = 8;
    gpu->failing = "cuMemAlloc_v2";
    gpu->code = 2;
    CHECK(kiln_launch_group(&both, &other, STREAM) == 0);
    SAYS("out of memory");
    gpu->failing = NULL;
    asked();
    CHECK(kiln_launch_group(&both, &other, STREAM) == 0);
    CHECK(count(asked(), "launch") == 1 && kiln_choice_count() == 1);
    /* A program that only uses choices measures none. */
    CHECK(kiln_enable_tuner(KILN_TUNER_USE, NULL) == 0);
    other.n = 16;
    CHECK(kiln_launch_group(&both, &other, STREAM) == 0);
    CHECK(count(asked(), "launch") == 1);
    /* An error of the driver that is no matter of measuring ends the launch. */
    set_context(NULL);
    FAILS(KILN_ERROR_NO_CONTEXT, kiln_launch_group(&both, &other, STREAM));
}

/* What is chosen holds for devices of the same name, wherever they are. */
static void devices(void)
{
    struct double_context contexts[] = { { 0, false }, { 1, false } };
    begin();
    const struct args args = good();
    const struct kiln_tune_options options = quick();
    gpu->device_count = 2;
    CHECK(kiln_enable_tuner(KILN_TUNER_USE, NULL) == 0);
    set_context(&contexts[1]);
    CHECK(kiln_tune(&both, &args, &options, NULL, 0, NULL) == 0);
    CHECK(chosen(&both, args) == &any);
    set_context(&contexts[0]);
    CHECK(chosen(&both, args) == &aligned);
    CHECK(kiln_save_choices("choices") == 0);
    CHECK(strcmp(read_file("choices"), "kernel-choices 1\n"
        LINE("both", "NVIDIA_H200__80_GB_", "n:1024,rows:4", "any", ANY_SHA, "5500000")) == 0);
    write_file("choices", "kernel-choices 1\n" LINE("both", DEVICE, "n:1024,rows:4", "any", ANY_SHA, "1"));
    CHECK(kiln_load_choices("choices", NULL) == 0 && kiln_choice_count() == 2);
    CHECK(chosen(&both, args) == &any);
    /* Another driver may have other devices under the same numbers. */
    CHECK(kiln_unload() == 0 && kiln_use_driver(NULL) == 0);
    kiln_forget_choices();
    CHECK(kiln_load_choices("choices", NULL) == 0);
    set_context(&contexts[1]);
    CHECK(chosen(&both, args) == &aligned);
}

static size_t told;
static char told_of[2000];
static void tell(void *user, const char *path, size_t line, const char *why)
{
    CHECK(user == &told);
    told++;
    const size_t used = strlen(told_of);
    snprintf(told_of + used, sizeof told_of - used, "%s:%zu: %s\n", path, line, why);
}

static void files(void)
{
    struct kiln_choices_report report = { 7, 7, 7, tell, &told };
    begin();
    const struct args args = good();
    const struct kiln_tune_options options = quick();
    CHECK(kiln_enable_tuner(KILN_TUNER_USE, NULL) == 0);
    CHECK(kiln_tune(&both, &args, &options, NULL, 0, NULL) == 0);
    CHECK(kiln_save_choices("saved") == 0);
    const char *saved = "kernel-choices 1\n" LINE("both", DEVICE, "n:1024,rows:4", "any", ANY_SHA, "5500000");
    CHECK(strcmp(read_file("saved"), saved) == 0);
    kiln_forget_choices();
    CHECK(chosen(&both, args) == &aligned);
    CHECK(kiln_load_choices("saved", &report) == 0 && report.taken == 1 && report.foreign == 0 && report.bad == 0);
    CHECK(chosen(&both, args) == &any);
    /* Lines that are none, each told by its number; comments, empty lines and a second header are nothing to tell. */
    write_file("mixed", "kernel-choices 1\r\n# a remark\n\nkernel-choices 1\nnonsense\n"
        LINE("both", DEVICE, "n:1024,rows:4", "aligned", ALIGNED_SHA, "1")
        "library=other group=both device=x shape=- variant=any target=sm_80 sha256=" ANY_SHA " nanoseconds=1\n"
        LINE("both", DEVICE, "n:1000", "any", ANY_SHA, "1")
        LINE("both", DEVICE, "n:1024", "any", ANY_SHA "0", "1")
        LINE("both", DEVICE, "n:1024", "any", ANY_SHA, "-1")
        LINE("both", "NVIDIA H100", "n:1024", "any", ANY_SHA, "1")
        "library=kiln group=both\n"
        "library=kiln  group=both\n"
        "library=kiln group=both device=x shape=- variant=any target=sm_80 sha256=" ANY_SHA " nanoseconds=1 \r\n"
        "library=kiln group=other device=x shape=- variant=any target=sm_80 sha256=" ANY_SHA " nanoseconds=5");
    CHECK(kiln_load_choices("mixed", &report) == 0 && report.taken == 2 && report.foreign == 1 && report.bad == 8);
    CHECK(told == 9);
    CHECK(strcmp(told_of, "mixed:5: word 1 is not library=...\n"
                          "mixed:7: it is of the library other\n"
                          "mixed:8: shape=... has no such value\n"
                          "mixed:9: sha256=... has no such value\n"
                          "mixed:10: nanoseconds=... has no such value\n"
                          "mixed:11: word 4 is not shape=...\n"
                          "mixed:12: device=... is missing\n"
                          "mixed:13: word 2 is not group=...\n"
                          "mixed:14: something follows nanoseconds=...\n") == 0);
    CHECK(kiln_choice_count() == 2 && chosen(&both, args) == &aligned); /* the file that came last holds */
    /* Of what was built anew since, and of what the library no longer has, nothing is left, also on other devices. */
    write_file("old", "kernel-choices 1\n"
        LINE("both", DEVICE, "n:1024,rows:4", "any", ALIGNED_SHA, "1") LINE("both", "other", "-", "gone", ANY_SHA, "1")
        LINE("both", "other", "n:1,rows:1", "any", ANY_SHA, "1") LINE("narrow", "other", "-", "gone", ANY_SHA, "1"));
    kiln_forget_choices();
    CHECK(kiln_load_choices("old", NULL) == 0 && kiln_choice_count() == 4);
    CHECK(chosen(&both, args) == &aligned);
    /* A variant of "both" is not linked, so that "gone" may be that one. */
    CHECK(kiln_choice_count() == 3);
    CHECK(chosen(&narrow, args) == &aligned && kiln_choice_count() == 2);
    /* An image of another target than the device gets is not taken. */
    write_file("old", "kernel-choices 1\nlibrary=kiln group=both device=" DEVICE
        " shape=n:1024,rows:4 variant=any target=sm_80 sha256=0000000000000000000000000000000000000000000000000000000000000000"
        " nanoseconds=1\n");
    CHECK(kiln_load_choices("old", NULL) == 0 && chosen(&both, args) == &aligned && kiln_choice_count() == 3);
}

static void bad_files(void)
{
    FAILS(KILN_ERROR_FILE, kiln_load_choices("missing", NULL));
    SAYS("missing: it cannot be opened: No such file");
    write_file("empty", "");
    FAILS(KILN_ERROR_FILE, kiln_load_choices("empty", NULL));
    SAYS("empty:1: it is no file of choices, which begins with kernel-choices 1");
    write_file("other", "ELF\n");
    FAILS(KILN_ERROR_FILE, kiln_load_choices("other", NULL));
    write_file("newer", "kernel-choices 12\n" LINE("both", DEVICE, "-", "any", ANY_SHA, "1"));
    FAILS(KILN_ERROR_FILE, kiln_load_choices("newer", NULL));
    SAYS("newer:1: it has schema version 12, and this library reads 1");
    mkdir("folder", 0777);
    FAILS(KILN_ERROR_FILE, kiln_load_choices("folder", NULL));
    SAYS("folder: it cannot be read: Is a directory");
    FAILS(KILN_ERROR_FILE, kiln_save_choices("missing/choices"));
    SAYS("it cannot be made: No such file");
    FAILS(KILN_ERROR_FILE, kiln_save_choices("folder"));
    SAYS("folder: it cannot be replaced");
    CHECK(kiln_choice_count() == 0);
    const struct rlimit none = { 8, RLIM_INFINITY };
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
    FAILS(KILN_ERROR_FILE, kiln_save_choices("kept"));
    SAYS("it cannot be written: File too large");
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(access("kept", F_OK) != 0);
    char long_line[3 * KILN_MAX_LINE], name[2 * KILN_MAX_LINE];
    struct kiln_choices_report report = { 0, 0, 0, tell, &told };
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(long_line, sizeof long_line, "kernel-choices 1\n%s\n" LINE("both", DEVICE, "-", "any", ANY_SHA, "1"), name);
    write_file("long", long_line);
    CHECK(kiln_load_choices("long", &report) == 0 && report.taken == 1 && report.bad == 1);
    CHECK(strcmp(told_of, "long:2: it is longer than 2000 bytes\n") == 0);
    /* Two files into one, which may be one of them. */
    write_file("first", "kernel-choices 1\n" LINE("b", DEVICE, "-", "any", ANY_SHA, "1") LINE("a", DEVICE, "-", "any", ANY_SHA, "1"));
    write_file("second", "kernel-choices 1\nbad\n" LINE("b", DEVICE, "-", "any", ANY_SHA, "2")
        "library=elsewhere group=b device=x shape=- variant=any target=sm_80 sha256=" ANY_SHA " nanoseconds=1\n");
    CHECK(kiln_merge_choices("first", "second", "first", &report) == 0 && report.taken == 4 && report.bad == 1);
    CHECK(strcmp(read_file("first"), "kernel-choices 1\n"
        "library=elsewhere group=b device=x shape=- variant=any target=sm_80 sha256=" ANY_SHA " nanoseconds=1\n"
        LINE("a", DEVICE, "-", "any", ANY_SHA, "1") LINE("b", DEVICE, "-", "any", ANY_SHA, "2")) == 0);
    CHECK(kiln_choice_count() == 1);
    FAILS(KILN_ERROR_FILE, kiln_merge_choices("first", "missing", "third", NULL));
    CHECK(access("third", F_OK) != 0);
    /* What a killed process with the same number has left. */
    struct stat found;
    char left[60];
    for (unsigned int i = 1; i < 20; i++) {
        snprintf(left, sizeof left, "again.%ld.%u.tmp", (long)getpid(), i);
        write_file(left, "half");
    }
    CHECK(kiln_save_choices("again") == 0 && stat("again", &found) == 0 && strcmp(read_file(left), "half") == 0);
    umask(027);
    CHECK(kiln_save_choices("saved") == 0 && stat("saved", &found) == 0 && (found.st_mode & 0777) == 0640);
}

struct numbers {
    int8_t a;
    uint8_t b;
    int16_t c;
    uint16_t d;
    int32_t e;
    uint32_t f;
    int64_t g;
    uint64_t h;
};

static void shapes(void)
{
    static struct group_block numbers, wide_block;
    const struct kiln_group *group = &numbers.record, *wide = &wide_block.record;
    char text[400];
    make_group(&numbers, "numbers", variants, 3, &both_tuned);
    add_extent(&numbers, "a", 0, 1, true);
    add_extent(&numbers, "b", 1, 1, false);
    add_extent(&numbers, "c", 2, 2, true);
    add_extent(&numbers, "d", 4, 2, false);
    add_extent(&numbers, "e", 8, 4, true);
    add_extent(&numbers, "f", 12, 4, false);
    add_extent(&numbers, "g", 16, 8, true);
    add_extent(&numbers, "h", 24, 8, false);
    struct numbers n = { -1, 255, 3, 65535, 0, 1, 5, 1025 };
    CHECK(kiln_describe_shape(group, &n, text, sizeof text) == 0);
    CHECK(strcmp(text, "a:0,b:256,c:4,d:65536,e:0,f:1,g:8,h:2048") == 0);
    n = (struct numbers) { 127, 128, INT16_MIN, 2, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX };
    CHECK(kiln_describe_shape(group, &n, text, sizeof text) == 0);
    CHECK(strcmp(text, "a:128,b:128,c:0,d:2,e:2147483648,f:4294967296,g:9223372036854775808,h:18446744073709551616") == 0);
    n = (struct numbers) { 0, 0, 0, 0, INT32_MIN, 4, INT64_MIN, (uint64_t)1 << 63 };
    CHECK(kiln_describe_shape(group, &n, text, sizeof text) == 0);
    CHECK(strcmp(text, "a:0,b:0,c:0,d:0,e:0,f:4,g:0,h:9223372036854775808") == 0);
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_describe_shape(group, &n, text, 49));
    SAYS("the shape of numbers does not fit in 49 bytes");
    CHECK(kiln_describe_shape(&pairs, &n, text, 2) == 0 && strcmp(text, "-") == 0);
    make_group(&wide_block, "wide", variants, 3, &both_tuned);
    for (size_t i = 0; i < 20; i++) {
        add_extent(&wide_block, "f", 12, 4, false);
    }
    CHECK(kiln_describe_shape(wide, &n, text, sizeof text) == 0 && count(text, "f:4") == 16);
}

/* Every bucket has its own entry, however many share a list. */
static void many_buckets(void)
{
    begin();
    const struct kiln_tune_options options = quick();
    for (int32_t i = 0; i < 6; i++) {
        for (int32_t k = 0; k < 6; k++) {
            const struct args args = with(1 << i, 1 << k);
            TAKES("aligned@sm_90a", 1);
            if ((i * k) % 3 == 0) {
                TAKES("aligned@sm_90a", 9);
            }
            CHECK(kiln_tune(&both, &args, &options, NULL, 0, NULL) == 0);
        }
    }
    CHECK(kiln_choice_count() == 36);
    CHECK(kiln_enable_tuner(KILN_TUNER_USE, NULL) == 0);
    for (int32_t i = 0; i < 6; i++) {
        for (int32_t k = 0; k < 6; k++) {
            CHECK(chosen(&both, with(1 << i, 1 << k)) == ((i * k) % 3 == 0 ? &any : &aligned));
        }
    }
}

static void *launch_often(void *result)
{
    static struct double_context context = { 0, false };
    set_context(&context);
    int status = 0;
    for (int32_t i = 0; i < 60; i++) {
        const struct args args = with(1 << i % 10, 4);
        status |= kiln_launch_group(&both, &args, STREAM);
        if (i % 20 == 0) {
            status |= kiln_load_choices("choices", NULL);
            status |= kiln_save_choices("saved");
        }
    }
    *(int *)result = status;
    return NULL;
}

static void threads(void)
{
    enum { THREADS = 6 };
    pthread_t started[THREADS];
    int results[THREADS];
    begin();
    struct kiln_tune_options options = quick();
    write_file("choices", "kernel-choices 1\n" LINE("both", DEVICE, "n:2,rows:4", "any", ANY_SHA, "1"));
    CHECK(kiln_enable_tuner(KILN_TUNER_TUNE, &options) == 0);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&started[i], NULL, launch_often, &results[i]);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(started[i], NULL);
        CHECK(results[i] == 0);
    }
    CHECK(kiln_choice_count() == 10);
    CHECK(chosen(&both, with(512, 4)) == &any);
    kiln_forget_choices();
    CHECK(kiln_unload() == 0);
}

static void no_memory(void)
{
    begin();
    const struct args args = good();
    const struct kiln_tune_options options = quick();
    CHECK(kiln_tune(&both, &args, &options, NULL, 0, NULL) == 0);
    CHECK(kiln_save_choices("choices") == 0);
    size_t refused = 0;
    for (long limit = 0; limit < 20; limit++) {
        allocations_left = limit;
        const int tuned = kiln_tune(&both, &args, &options, NULL, 0, NULL);
        allocations_left = limit;
        const int saved = kiln_save_choices("saved");
        allocations_left = limit;
        const int loaded = kiln_load_choices("choices", NULL);
        allocations_left = limit;
        const int merged = kiln_merge_choices("choices", "choices", "merged", NULL);
        allocations_left = -1;
        /* The double's own memory is the device's. */
        CHECK(tuned == 0 || tuned == KILN_ERROR_OUT_OF_MEMORY);
        CHECK(saved == 0 || saved == KILN_ERROR_OUT_OF_MEMORY);
        CHECK(loaded == 0 || loaded == KILN_ERROR_OUT_OF_MEMORY);
        CHECK(merged == 0 || merged == KILN_ERROR_OUT_OF_MEMORY);
        refused += (tuned != 0) + (saved != 0) + (loaded != 0) + (merged != 0);
        CHECK(kiln_choice_count() == 1);
    }
    CHECK(refused >= 8);
    /* A launch that cannot look its choice up goes on without. */
    CHECK(kiln_enable_tuner(KILN_TUNER_USE, NULL) == 0);
    allocations_left = 0;
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    allocations_left = -1;
    CHECK(count(asked(), "launch aligned") > 0);
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    CHECK(count(asked(), "launch any@sm_90a") == 1);
}

static void amd(void)
{
    use("libamdhip64.so");
    const struct args args = good();
    struct kiln_tune_options options = quick();
    options.keep_cache = true;
    CHECK(kiln_tune(&both, &args, &options, NULL, 0, NULL) == 0);
    CHECK(kiln_save_choices("choices") == 0);
    CHECK(strncmp(read_file("choices"), "kernel-choices 1\nlibrary=kiln group=both device=AMD_Instinct_MI300X shape=", 72) == 0);
}

/* How long a group's launch takes with the tuner off, and on: nanoseconds that the driver's double and the search take. */
static void cost(void)
{
    begin();
    const struct args args = good();
    const struct kiln_tune_options options = quick();
    CHECK(kiln_tune(&both, &args, &options, NULL, 0, NULL) == 0);
    for (int tuner = KILN_TUNER_OFF; tuner <= KILN_TUNER_USE; tuner++) {
        struct timespec start, end;
        struct kiln_choice choice;
        kiln_enable_tuner((enum kiln_tuner)tuner, NULL);
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (int i = 0; i < 1000000; i++) {
            kiln_choose(&both, &args, &choice);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%s: %.1f ns a choice\n", tuner == KILN_TUNER_OFF ? "off" : "on",
            ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) / 1e6);
    }
}

/* Reads a file of choices as the library named kiln, prints what it passes over, and writes what it took. */
static void print_line(void *user, const char *path, size_t line, const char *why)
{
    (void)user;
    (void)path;
    printf("%zu %s\n", line, why);
}

static void copied(void)
{
    struct kiln_choices_report report = { 0, 0, 0, print_line, NULL };
    const int status = kiln_load_choices("from", &report);
    printf("status %d taken %zu foreign %zu bad %zu\n", status, report.taken, report.foreign, report.bad);
    if (status == 0) {
        CHECK(kiln_save_choices("to") == 0);
    }
}

static void merged(void)
{
    CHECK(kiln_merge_choices("first", "second", "to", NULL) == 0);
}

#define CASE(name) { #name, name }

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = { CASE(measured), CASE(median), CASE(warm), CASE(failing_candidates), CASE(refused_calls), CASE(reset),
        CASE(out_of_time), CASE(first_use), CASE(devices), CASE(files), CASE(bad_files), CASE(shapes), CASE(many_buckets),
        CASE(threads), CASE(no_memory), CASE(amd), CASE(cost), CASE(copied), CASE(merged) };
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return failures == 0 ? 0 : 1;
        }
    }
    return 2;
}
