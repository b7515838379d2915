/* The runtime's launches against a driver that computes nothing: `launch_cases CASE` ends with 0 when CASE holds. */
#include "cases.h"

#include <sys/wait.h>
#include <unistd.h>

/* -- cases */

static void first_use(void)
{
    use_cuda();
    const struct args args = good();
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(is_asked("cuInit\nload aligned@sm_90a\nlaunch aligned@sm_90a" PLAIN));
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(kiln_launch(&aligned, &args, NULL) == 0);
    CHECK(count(asked(), "load") == 0);
    CHECK(kiln_launch_variant(&any, &args, STREAM) == 0);
    CHECK(is_asked("load any@sm_90a\nlaunch any@sm_90a" PLAIN));
    CHECK(kiln_last_error()->status == 0);
    CHECK(kiln_unload() == 0);
    CHECK(gpu->loaded == 0);
    CHECK(count(asked(), "drop") == 2);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(is_asked("load aligned@sm_90a\nlaunch aligned@sm_90a" PLAIN));
}

static void refused_calls(void)
{
    struct args args = good();
    args.rows = 0;
    args.n = 5000;
    args.x = (void *)0x7001;
    struct kiln_choice choice;
    CHECK(kiln_launch_variant(&aligned, &args, NULL) == 0); /* nothing to do, whatever the rest is */
    CHECK(kiln_launch_group(&both, &args, NULL) == 0);
    CHECK(kiln_choose(&both, &args, &choice) == 0 && choice.variant == &aligned && choice.grid[0] == 0 && choice.image == NULL);
    args.rows = -1;
    FAILS(KILN_ERROR_GRID_OUT_OF_RANGE, kiln_launch_variant(&aligned, &args, NULL));
    SAYS("the grid of aligned is negative");
    args.rows = 1;
    FAILS(KILN_ERROR_NOT_SELECTED, kiln_launch_variant(&aligned, &args, NULL));
    SAYS("aligned serves a call when n <= 1024, which does not hold");
    args.n = 1024;
    FAILS(KILN_ERROR_MISALIGNED, kiln_launch_variant(&aligned, &args, NULL));
    SAYS("the address x of aligned is not a multiple of 16 bytes");
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_launch_variant(NULL, &args, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_launch_variant(&aligned, NULL, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_launch_group(NULL, &args, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_launch_group(&both, NULL, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_choose(&both, &args, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_launch_group(&mixed, &args, NULL));
    SAYS("the variants of mixed take different argument structs");
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_launch_first(NULL, 0, &args, NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_preload(NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_preload_group(NULL));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_explain_choice(NULL, 0, NULL, 0));
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_describe_device(0, NULL));
    const struct kiln_launch_options old = { sizeof old - 1, NULL, NULL, NULL, KILN_CHECKS_NONE };
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_launch(&aligned, &args, &old));
    /* No driver was asked for any of that. */
    CHECK(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) == NULL);
}

static void options(void)
{
    use_cuda();
    const struct args args = good();
    const uint32_t grid[3] = { 7, 2, 3 }, none[3] = { 1, 0, 1 }, wide[3] = { 1, 65536, 1 };
    struct kiln_launch_options set = { sizeof set, STREAM, grid, &aligned_ptx, KILN_CHECKS_NONE };
    CHECK(kiln_launch(&aligned, &args, &set) == 0);
    CHECK(is_asked("cuInit\nload aligned@compute_80\n"
                   "launch aligned@compute_80 on 0 grid 7,2,3 block 128,1,1 shared 16 stream 0x51 " PACKED));
    set.image = NULL;
    CHECK(kiln_launch(&aligned, &args, &set) == 0);
    CHECK(count(asked(), "load aligned@sm_90a\n") == 1);
    set.image = &aligned_ptx;
    CHECK(kiln_launch(&aligned, &args, &set) == 0);
    CHECK(count(asked(), "load") == 0);
    set.image = &any_90a;
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_launch(&aligned, &args, &set));
    SAYS("any@sm_90a is no image of aligned");
    set.image = &aligned_80;
    FAILS(KILN_ERROR_NO_IMAGE, kiln_launch(&aligned, &args, &set));
    SAYS("aligned@sm_80 on device 0 (sm_90): the device has another major version");
    set.grid = none;
    CHECK(kiln_launch(&aligned, &args, &set) == 0);
    set.grid = wide;
    FAILS(KILN_ERROR_GRID_OUT_OF_RANGE, kiln_launch(&aligned, &args, &set));
    struct kiln_handles handles;
    CHECK(kiln_load(&aligned, &handles) == 0 && handles.image == &aligned_90a && handles.module != NULL
        && handles.function != NULL);
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
}

static void groups_choose(void)
{
    use_cuda();
    struct args args = good();
    struct kiln_choice choice;
    CHECK(kiln_choose(&both, &args, &choice) == 0 && choice.variant == &aligned && choice.image == &aligned_90a
        && choice.grid[0] == 4);
    CHECK(is_asked("cuInit\n")); /* a choice loads nothing */
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    CHECK(is_asked("load aligned@sm_90a\nlaunch aligned@sm_90a" PLAIN));
    args.x = (void *)0x7001;
    CHECK(kiln_choose(&both, &args, &choice) == 0 && choice.variant == &any && choice.image == &any_90a);
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    CHECK(count(asked(), "launch any@sm_90a") == 1);
    CHECK(kiln_launch_first(variants, 3, &args, STREAM) == 0);
    CHECK(count(asked(), "launch any@sm_90a") == 1);
    args.x = NULL;
    args.n = 1025;
    CHECK(kiln_choose(&both, &args, &choice) == 0 && choice.variant == &any);
    FAILS(KILN_ERROR_NOT_SELECTED, kiln_launch_group(&narrow, &args, STREAM));
    SAYS("aligned serves a call when n <= 1024");
    args = good();
    args.x = (void *)0x7001;
    FAILS(KILN_ERROR_MISALIGNED, kiln_launch_group(&narrow, &args, STREAM));
    args.rows = -1;
    FAILS(KILN_ERROR_GRID_OUT_OF_RANGE, kiln_launch_group(&both, &args, STREAM));
    SAYS("none of the 2 variants of both serves the call; the nearest: the grid of any is negative");
    static const struct kiln_variant *const unlinked[] = { NULL };
    static struct group_block empty;
    static struct kiln_tuned tuned;
    make_group(&empty, "empty", unlinked, 1, &tuned);
    FAILS(KILN_ERROR_NO_IMAGE, kiln_launch_group(&empty.record, &args, STREAM));
    SAYS("the program has linked no image of empty");
}

static void lookups(void)
{
    CHECK(kiln_variant_count() == 2 && kiln_variant_at(0) == &aligned && kiln_variant_at(1) == &any);
    CHECK(kiln_variant_at(2) == NULL && kiln_variant_at(SIZE_MAX) == NULL);
    CHECK(kiln_variant_find("any") == &any && kiln_variant_find("an") == NULL && kiln_variant_find(NULL) == NULL);
    CHECK(kiln_group_count() == 2 && kiln_group_at(0) == &both && kiln_group_at(1) == &mixed && kiln_group_at(2) == NULL);
    CHECK(kiln_group_find("mixed") == &mixed && kiln_group_find("m") == NULL && kiln_group_find(NULL) == NULL);
}

static void two_devices(void)
{
    struct double_context contexts[] = { { 0, false }, { 1, false }, { 2, false } };
    const struct args args = good();
    use_cuda();
    gpu->device_count = 3;
    gpu->capability[1] = 86;
    for (size_t i = 0; i < 6; i++) {
        set_context(&contexts[i % 3]);
        CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    }
    const char *log = asked();
    /* Device 0 and 2 are alike, and one library serves both. */
    CHECK(count(log, "load ") == 2 && count(log, "load aligned@sm_90a") == 1 && count(log, "load aligned@sm_80") == 1);
    CHECK(count(log, "launch aligned@sm_90a on 0") == 2 && count(log, "launch aligned@sm_80 on 1") == 2
        && count(log, "launch aligned@sm_90a on 2") == 2);
    set_context(NULL);
    FAILS(KILN_ERROR_NO_CONTEXT, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("make a context current in this thread first");
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
}

static void two_contexts(void)
{
    struct double_context contexts[] = { { 0, false }, { 0, false } };
    const struct args args = good();
    use_cuda();
    for (size_t i = 0; i < 4; i++) {
        set_context(&contexts[i % 2]);
        CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    }
    const char *log = asked();
    const bool is_old = symbol("libcuda.so.1", "cuModuleLoadDataEx") != NULL
        && dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuLibraryLoadData") == NULL;
    /* A module belongs to its context, a library to all of them. */
    CHECK(count(log, "load ") == (is_old ? 2 : 1) && count(log, "launch") == 4);
    set_context(NULL);
    FAILS(KILN_ERROR_NO_CONTEXT, kiln_launch_variant(&aligned, &args, STREAM));
    void *found = symbol("libcuda.so.1", "double_destroy");
    void (*destroy)(struct double_context *);
    memcpy(&destroy, &found, sizeof found);
    destroy(&contexts[1]); /* with what was loaded in it */
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
    set_context(&contexts[0]);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    gpu->failing = is_old ? "cuModuleUnload" : "cuLibraryUnload";
    gpu->code = 4; /* deinitialized, as at the end of a process */
    CHECK(kiln_unload() == 0);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    gpu->code = 999;
    FAILS(999, kiln_unload());
    SAYS("while an image was unloaded");
}

static void *launch_often(void *result)
{
    static struct double_context context = { 0, false };
    set_context(&context);
    struct args args = good();
    int status = 0;
    for (size_t i = 0; i < 50; i++) {
        args.n = i % 2 == 0 ? 1024 : 1025;
        status |= kiln_launch_group(&both, &args, STREAM);
        status |= kiln_launch_variant(&any, &args, STREAM);
        args.rows = -1;
        status |= kiln_launch_group(&both, &args, STREAM) == KILN_ERROR_GRID_OUT_OF_RANGE ? 0 : 1;
        status |= kiln_last_error()->status == KILN_ERROR_GRID_OUT_OF_RANGE ? 0 : 1;
        args.rows = 4;
    }
    *(int *)result = status;
    return NULL;
}

static void threads(void)
{
    enum { THREADS = 8 };
    pthread_t started[THREADS];
    int results[THREADS];
    use_cuda();
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&started[i], NULL, launch_often, &results[i]);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(started[i], NULL);
        CHECK(results[i] == 0);
    }
    const char *log = asked();
    CHECK(count(log, "cuInit") == 1 && count(log, "load ") == 2);
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
}

static void missing_library(void)
{
    const struct args args = good();
    for (size_t i = 0; i < 2; i++) {
        FAILS(KILN_ERROR_DRIVER_NOT_FOUND, kiln_launch_variant(&aligned, &args, STREAM));
        SAYS("libcuda.so.1");
        SAYS("libamdhip64.so");
    }
    CHECK(kiln_use_driver(NULL) == 0);
    FAILS(KILN_ERROR_DRIVER_NOT_FOUND, kiln_preload(&aligned));
    struct kiln_device device;
    FAILS(KILN_ERROR_DRIVER_NOT_FOUND, kiln_describe_device(-1, &device));
    FAILS(KILN_ERROR_DRIVER_NOT_FOUND, kiln_describe_device(0, &device));
    CHECK(kiln_unload() == 0);
    CHECK(strcmp(kiln_status_name(209), "an error of the driver") == 0);
}

static void missing_symbol(void)
{
    const struct args args = good();
    FAILS(KILN_ERROR_SYMBOL_MISSING, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("libcuda.so.1 lacks the function cuModuleLoadDataEx");
    CHECK(strcmp(kiln_status_name(KILN_ERROR_SYMBOL_MISSING), "KILN_ERROR_SYMBOL_MISSING") == 0);
}

static void failing_driver(void)
{
    const struct args args = good();
    char detail[64];
    use_cuda();
    gpu->failing = "cuInit";
    gpu->code = 999;
    FAILS(999, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("CUDA_ERROR_OTHER (999, something went wrong) while the driver CUDA was opened");
    gpu->failing = NULL;
    FAILS(999, kiln_launch_variant(&aligned, &args, STREAM)); /* remembered */
    CHECK(kiln_use_driver(NULL) == 0);
    gpu->failing = "cuDeviceGetAttribute";
    FAILS(999, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("while the device was described");
    gpu->failing = "cuLibraryLoadData";
    gpu->code = 2;
    FAILS(2, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("CUDA_ERROR_OUT_OF_MEMORY (2, out of memory) while aligned@sm_90a was loaded");
    CHECK(strcmp(kiln_status_name(2), "CUDA_ERROR_OUT_OF_MEMORY") == 0 && strcmp(kiln_status_text(2), "out of memory") == 0);
    CHECK(strcmp(kiln_last_error()->call, "load") == 0);
    gpu->code = 200;
    FAILS(KILN_ERROR_INVALID_IMAGE, kiln_launch_variant(&aligned, &args, STREAM));
    gpu->failing = "cuModuleGetFunction"; /* which cuLibraryGetKernel calls */
    gpu->code = 500;
    FAILS(500, kiln_launch_variant(&aligned, &args, STREAM));
    CHECK(gpu->loaded == 0);
    gpu->failing = "launch";
    gpu->code = 700;
    FAILS(700, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("this may come from earlier work");
    gpu->failing = NULL;
    asked();
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(gpu->loaded == 1);
    CHECK(strcmp(kiln_status_name(12345), "an error of the driver") == 0);
    CHECK(strcmp(kiln_status_name(-12345), "an unknown status") == 0);
    for (int status = 0; status >= KILN_ERROR_NOT_MEASURED; status--) {
        snprintf(detail, sizeof detail, "%s", kiln_status_name(status));
        CHECK(strncmp(detail, "KILN_", 5) == 0 && kiln_status_text(status)[0] != '\0');
    }
    set_context(NULL);
    FAILS(KILN_ERROR_NO_CONTEXT, kiln_launch_variant(&aligned, &args, STREAM));
}

static void ptx(void)
{
    const struct args args = good();
    use_cuda();
    gpu->capability[0] = 100;
    aligned_ptx.ptx_isa_at = add_text(&aligned_ptx_block.texts, &aligned_ptx, "8.0");
    gpu->driver_version = 11080;
    FAILS(KILN_ERROR_DRIVER_TOO_OLD, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("compute_80: it is PTX of ISA 8.0, which drivers know since CUDA 12.0, and the driver is of CUDA 11.8");
    CHECK(kiln_unload() == 0 && kiln_use_driver(NULL) == 0);
    gpu->driver_version = 12000;
    gpu->failing = "cuLibraryLoadData";
    gpu->code = 218;
    gpu->compiler_log = "ptxas application ptx input, line 9; fatal : no such instruction";
    FAILS(KILN_ERROR_INVALID_IMAGE, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("while aligned@compute_80 was loaded:\nptxas application ptx input, line 9");
    gpu->code = 222;
    FAILS(KILN_ERROR_DRIVER_TOO_OLD, kiln_launch_variant(&aligned, &args, STREAM));
    gpu->failing = "cuKernelGetFunction"; /* where a library's PTX is compiled */
    gpu->code = 218;
    FAILS(KILN_ERROR_INVALID_IMAGE, kiln_launch_variant(&aligned, &args, STREAM));
    CHECK(gpu->loaded == 0);
    gpu->failing = NULL;
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(count(asked(), "launch aligned@compute_80") == 1);
}

static void forked(void)
{
    const struct args args = good();
    use_cuda();
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    const pid_t child = fork();
    if (child == 0) {
        asked();
        FAILS(KILN_ERROR_FORKED, kiln_launch_variant(&aligned, &args, STREAM));
        SAYS("start it with exec");
        FAILS(KILN_ERROR_FORKED, kiln_launch_group(&both, &args, STREAM));
        FAILS(KILN_ERROR_FORKED, kiln_use_driver(NULL));
        CHECK(kiln_unload() == 0);
        CHECK(is_asked(""));
        fflush(stdout);
        _exit(failures == 0 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
}

static void attributes(void)
{
    const struct args args = good();
    use_cuda();
    aligned_90a.cluster[0] = 2;
    aligned_90a.pdl = true;
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(is_asked("cuInit\nload aligned@sm_90a\nlaunch aligned@sm_90a on 0 grid 8,1,1 block 128,1,1 shared 16 stream 0x51"
                   " 4:2,1,1 6:1,0,0 " PACKED));
    kiln_unload();
    asked();
    aligned_90a.cluster[0] = 16;
    aligned_90a.pdl = false;
    aligned_90a.cooperative = true;
    aligned_90a.shared_static = 1024;
    aligned_90a.shared_dynamic = 48 * 1024;
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(is_asked("load aligned@sm_90a\nattribute 8 49152 of aligned@sm_90a on 0\nattribute 14 1 of aligned@sm_90a on 0\n"
                   "launch aligned@sm_90a on 0 grid 64,1,1 block 128,1,1 shared 49152 stream 0x51 4:16,1,1 2:1,0,0 " PACKED));
    /* 2^28 + 1 clusters of 16 blocks: 16 blocks more than 32 bits can count. */
    const uint32_t wide[3] = { (1u << 28) + 1, 1, 1 }, most[3] = { (1u << 27) - 1, 1, 1 };
    struct kiln_launch_options set = { sizeof set, STREAM, wide, NULL, KILN_CHECKS_NONE };
    FAILS(KILN_ERROR_GRID_OUT_OF_RANGE, kiln_launch(&aligned, &args, &set));
    SAYS("the grid of aligned@sm_90a has 4294967312 blocks in x with those of its clusters, and a driver takes 2147483647");
    CHECK(is_asked(""));
    set.grid = most;
    CHECK(kiln_launch(&aligned, &args, &set) == 0);
    CHECK(count(asked(), "grid 2147483632,1,1") == 1);
    kiln_unload();
    gpu->failing = "cuKernelSetAttribute";
    gpu->code = 1;
    FAILS(1, kiln_launch_variant(&aligned, &args, STREAM));
    gpu->failing = NULL;
    /* What a device cannot do. */
    const struct {
        int *limit;
        int value;
        int status;
        const char *detail;
    } limits[] = {
        { &gpu->max_threads, 64, KILN_ERROR_TOO_MANY_THREADS, "sm_90a: a block has 128 threads, and the device takes 64" },
        { &gpu->max_shared, 49152, KILN_ERROR_TOO_MUCH_SHARED,
            "sm_90a: a block needs 50176 bytes of shared memory, and the device has 49152" },
        { &gpu->cooperative, 0, KILN_ERROR_UNSUPPORTED, "sm_90a: it is launched cooperatively, which the device cannot" },
        { &gpu->clusters, 0, KILN_ERROR_UNSUPPORTED, "sm_90a: it is launched in clusters, which the device" },
        { &gpu->clusters, -1, KILN_ERROR_UNSUPPORTED, "sm_90a: it is launched in clusters" },
    };
    aligned_ptx.ptx_isa_at = add_text(&aligned_ptx_block.texts, &aligned_ptx, "9.9"); /* out of the way */
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const int before = *limits[i].limit;
        CHECK(kiln_unload() == 0 && kiln_use_driver(NULL) == 0);
        *limits[i].limit = limits[i].value;
        FAILS(limits[i].status, kiln_launch_variant(&aligned, &args, STREAM));
        SAYS(limits[i].detail);
        *limits[i].limit = before;
    }
    CHECK(kiln_unload() == 0 && kiln_use_driver(NULL) == 0);
    aligned_90a.parameter_bytes = 5000;
    FAILS(KILN_ERROR_PARAMETERS_TOO_LARGE, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("it has 5000 bytes of parameters, and drivers take 4096");
}

/* The driver is older than launches with attributes: a cooperative image is told so when it is launched. */
static void attributes_of_an_older_driver(void)
{
    const struct args args = good();
    use_cuda();
    gpu->driver_version = 11070;
    aligned_90a.cooperative = true;
    FAILS(KILN_ERROR_DRIVER_TOO_OLD, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("aligned@sm_90a is launched with attributes, which drivers know since CUDA 11.8; this one is of CUDA 11.7");
    aligned_90a.cooperative = false;
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
}

static size_t given, taken, wanted_bytes, wanted_align;
static bool is_empty;

static void *allocate(void *user, size_t bytes, size_t align, struct CUstream_st *stream, int32_t device)
{
    CHECK(user == &given && stream == STREAM && device == 0);
    wanted_bytes = bytes;
    wanted_align = align;
    given++;
    return is_empty && given % 2 == 0 ? NULL : (void *)0xabc00;
}

static void release(void *user, void *address, struct CUstream_st *stream, int32_t device)
{
    CHECK(user == &given && stream == STREAM && device == 0 && address == (void *)0xabc00);
    taken++;
}

static void scratch(void)
{
    const struct args args = good();
    const struct kiln_scratch_allocator allocator = { &given, allocate, release };
    use_cuda();
    aligned_90a.global_scratch_bytes = 128;
    aligned_90a.global_scratch_align = 256;
    aligned_90a.cluster[0] = 2;
    FAILS(KILN_ERROR_SCRATCH_NEEDED, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("aligned@sm_90a needs 1024 bytes of scratch memory");
    kiln_set_scratch_allocator(&allocator);
    asked();
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(count(asked(), "[0070000000000000e803000000000000" "00bc0a00000000000000000000000000]") == 1);
    CHECK(given == 1 && taken == 1 && wanted_bytes == 4 * 2 * 128 && wanted_align == 256);
    aligned_90a.profile_scratch_bytes = 8;
    aligned_90a.profile_scratch_align = 16;
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(count(asked(), "[0070000000000000e803000000000000" "00bc0a000000000000bc0a0000000000]") == 1);
    CHECK(given == 3 && taken == 3 && wanted_align == 16);
    is_empty = true;
    FAILS(KILN_ERROR_SCRATCH_FAILED, kiln_launch_variant(&aligned, &args, STREAM));
    CHECK(given == 4 && taken == 3); /* the first of the two failed */
    given = 0;
    FAILS(KILN_ERROR_SCRATCH_FAILED, kiln_launch_variant(&aligned, &args, STREAM));
    CHECK(given == 2 && taken == 4); /* the second did, and the first went back */
    is_empty = false;
    gpu->failing = "launch";
    gpu->code = 1;
    FAILS(1, kiln_launch_variant(&aligned, &args, STREAM));
    CHECK(given == 4 && taken == 6);
    aligned_90a.global_scratch_bytes = UINT64_MAX / 4;
    FAILS(KILN_ERROR_SCRATCH_FAILED, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("more scratch memory than can be addressed");
    kiln_set_scratch_allocator(NULL);
}

static void checked(void)
{
    enum { HOST = 1, DEVICE = 2 };
    struct args args = good();
    use_cuda();
    gpu->pointers[0] = (struct double_pointer) { args.x, DEVICE, false, 0 };
    gpu->pointers[1] = (struct double_pointer) { (void *)0x8000, HOST, false, 0 };
    gpu->pointers[2] = (struct double_pointer) { (void *)0x9000, DEVICE, true, 1 };
    gpu->pointers[3] = (struct double_pointer) { (void *)0xa000, DEVICE, false, 1 };
    kiln_set_checks(KILN_CHECKS_POINTERS);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    args.x = (void *)0x8000;
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    args.x = (void *)0x9000;
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    args.x = (void *)0xa000;
    FAILS(KILN_ERROR_BAD_POINTER, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("x of aligned is memory of device 1, and the launch is on device 0");
    args.x = (void *)0xb000;
    FAILS(KILN_ERROR_BAD_POINTER, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("x of aligned is 0xb000, which the driver does not know");
    args.x = NULL;
    FAILS(KILN_ERROR_BAD_POINTER, kiln_launch_variant(&aligned, &args, STREAM));
    kiln_set_checks(KILN_CHECKS_POINTERS_OR_NULL);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    gpu->failing = "cuPointerGetAttribute";
    gpu->code = 700;
    args.x = (void *)0xb000;
    FAILS(700, kiln_launch_variant(&aligned, &args, STREAM));
    gpu->failing = NULL;
    kiln_set_checks(KILN_CHECKS_NONE);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    const struct kiln_launch_options checking = { sizeof checking, STREAM, NULL, NULL, KILN_CHECKS_POINTERS };
    FAILS(KILN_ERROR_BAD_POINTER, kiln_launch(&aligned, &args, &checking));
    CHECK(kiln_unload() == 0 && kiln_use_driver(NULL) == 0);
    gpu->pageable = 1; /* kernels read what malloc gave */
    kiln_set_checks(KILN_CHECKS_POINTERS);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
}

static struct kiln_launch_event told;
static size_t befores, afters;
static int told_status;

static void before(void *user, const struct kiln_launch_event *event)
{
    CHECK(user == &told && befores == afters && count(asked(), "launch ") == 0);
    told = *event;
    befores++;
}

static void after(void *user, const struct kiln_launch_event *event, int status)
{
    CHECK(user == &told && befores == afters + 1 && count(asked(), "launch ") == (status == 0 ? 1 : 0));
    CHECK(event->variant == told.variant && event->image == told.image);
    told_status = status;
    afters++;
}

static void hooked(void)
{
    struct args args = good();
    const struct kiln_launch_hook whole = { &told, before, after }, first = { &told, before, NULL };
    const struct kiln_launch_hook last = { &told, NULL, after };
    use_cuda();
    kiln_set_launch_hook(&whole);
    asked();
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0); /* loads the image too */
    CHECK(befores == 1 && afters == 1 && told_status == 0 && told.device == 0 && told.stream == STREAM);
    CHECK(told.variant == &aligned && told.image == &aligned_90a);
    CHECK(told.grid[0] == 4 && told.grid[1] == 1 && told.grid[2] == 1);
    CHECK(kiln_launch_group(&both, &args, NULL) == 0);
    CHECK(befores == 2 && afters == 2 && told.variant == &aligned && told.stream == NULL);
    gpu->failing = "launch";
    gpu->code = 1;
    FAILS(1, kiln_launch_variant(&aligned, &args, STREAM));
    CHECK(befores == 3 && afters == 3 && told_status == 1);
    gpu->failing = NULL;
    /* What never comes to a launch is not told of. */
    kiln_set_checks(KILN_CHECKS_POINTERS);
    FAILS(KILN_ERROR_BAD_POINTER, kiln_launch_variant(&aligned, &args, STREAM));
    kiln_set_checks(KILN_CHECKS_NONE);
    args.rows = 0;
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    args = good();
    CHECK(befores == 3 && afters == 3);
    /* Checks and hook share a word, and neither takes the other away. */
    kiln_set_checks(KILN_CHECKS_POINTERS_OR_NULL);
    kiln_set_launch_hook(NULL);
    FAILS(KILN_ERROR_BAD_POINTER, kiln_launch_variant(&aligned, &args, STREAM));
    kiln_set_launch_hook(&first);
    FAILS(KILN_ERROR_BAD_POINTER, kiln_launch_variant(&aligned, &args, STREAM));
    kiln_set_checks(KILN_CHECKS_NONE);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(befores == 4 && afters == 3 && count(asked(), "launch ") == 1);
    kiln_set_launch_hook(&last);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(befores == 4 && afters == 4);
    kiln_set_launch_hook(NULL);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(befores == 4 && afters == 4);
}

static void captured(void)
{
    const struct args args = good();
    use_cuda();
    const bool is_old = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuLibraryLoadData") == NULL;
    gpu->capture_status = 1;
    if (is_old) {
        FAILS(KILN_ERROR_CAPTURING, kiln_launch_variant(&aligned, &args, STREAM));
        SAYS("preload aligned before");
    } else {
        CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
        CHECK(kiln_unload() == 0);
    }
    CHECK(kiln_preload(&aligned) == 0);
    const char *log = asked();
    CHECK(count(log, "settle aligned@sm_90a") == (is_old ? 0 : 1));
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(is_asked("launch aligned@sm_90a" PLAIN)); /* and nothing else is asked */
    gpu->failing = "launch";
    gpu->code = 900;
    FAILS(900, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("preload images before a capture");
    gpu->failing = "cuStreamIsCapturing";
    if (is_old) {
        FAILS(900, kiln_launch_variant(&any, &args, STREAM));
    }
}

static void preloaded(void)
{
    use_cuda();
    CHECK(kiln_preload_group(&both) == 0);
    const char *log = asked();
    CHECK(count(log, "load ") == 2 && count(log, "settle") == 2);
    CHECK(kiln_preload_all() == 0);
    CHECK(count(asked(), "load ") == 0);
    CHECK(kiln_unload() == 0 && kiln_use_driver(NULL) == 0);
    gpu->capability[0] = 120; /* of which "any" has no image, and the other its PTX */
    CHECK(kiln_preload_group(&both) == 0);
    CHECK(count(asked(), "load ") == 1);
    CHECK(kiln_preload_all() == 0);
    FAILS(KILN_ERROR_NO_IMAGE, kiln_preload(&any));
    SAYS("any for device 0 (sm_120):\n  sm_80: the device has another major version\n  sm_90a: it is for that architecture"
         " alone\nnone is used");
    CHECK(kiln_unload() == 0 && kiln_use_driver(NULL) == 0);
    gpu->capability[0] = 75;
    FAILS(KILN_ERROR_NO_IMAGE, kiln_preload_group(&both));
    FAILS(KILN_ERROR_NO_IMAGE, kiln_preload_all());
    gpu->capability[0] = 90;
    CHECK(kiln_unload() == 0 && kiln_use_driver(NULL) == 0);
    gpu->failing = "cuLibraryLoadData";
    gpu->code = 2;
    FAILS(2, kiln_preload_group(&both));
    FAILS(2, kiln_preload_all());
    gpu->failing = "cuKernelGetFunction";
    FAILS(2, kiln_preload(&any));
    SAYS("while a function was put into the context");
}

static int opened_table;
static int open_table(void *user) { opened_table++; return *(int *)user; }

static int launch_nothing(void *user, const struct kiln_launch_request *request)
{
    CHECK(request->buffer != NULL);
    return *(int *)user;
}

static void own_table(void)
{
    const struct args args = good();
    int code = 0;
    use_cuda();
    struct kiln_driver table = *kiln_cuda_driver();
    table.struct_bytes--;
    CHECK(kiln_use_driver(&table) == 0);
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_launch_variant(&aligned, &args, STREAM));
    CHECK(kiln_use_driver(NULL) == 0);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_use_driver(&table));
    SAYS("unload them first");
    CHECK(kiln_unload() == 0);
    table.struct_bytes++;
    table.open = open_table;
    table.user = &code;
    CHECK(kiln_use_driver(&table) == 0);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(opened_table == 1);
    CHECK(kiln_unload() == 0 && kiln_use_driver(&table) == 0);
    code = 2;
    FAILS(2, kiln_launch_variant(&aligned, &args, STREAM));
    /* A code below 0, which the table has nothing to note down with, and which is that of no call before. */
    CHECK(kiln_use_driver(&table) == 0);
    code = KILN_ERROR_DRIVER_NOT_FOUND;
    for (int i = 0; i < 2; i++) {
        FAILS(KILN_ERROR_INVALID_ARGUMENT, kiln_preload(NULL));
        FAILS(KILN_ERROR_DRIVER_NOT_FOUND, kiln_launch_variant(&aligned, &args, STREAM));
        CHECK(kiln_last_error()->status == KILN_ERROR_DRIVER_NOT_FOUND);
        SAYS("no driver of a GPU was found, while the driver was opened");
    }
    CHECK(opened_table == 3);
    table.open = kiln_cuda_driver()->open;
    table.launch = launch_nothing;
    code = -77;
    CHECK(kiln_use_driver(&table) == 0);
    FAILS(-77, kiln_launch_variant(&aligned, &args, STREAM));
    CHECK(kiln_last_error()->status == -77 && strcmp(kiln_last_error()->call, "launch") == 0);
}

/* Forks, as a driver does that has a helper set up its devices. */
static void fork_here(void)
{
    int status = 1;
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static int open_and_fork(void *user)
{
    fork_here();
    return kiln_cuda_driver()->open(user);
}

static int load_and_fork(
    void *user, const struct kiln_image *image, const void *data, void **module, char *log, size_t log_bytes)
{
    fork_here();
    return kiln_cuda_driver()->load(user, image, data, module, log, log_bytes);
}

static void a_driver_that_forks(void)
{
    const struct args args = good();
    use_cuda();
    struct kiln_driver table = *kiln_cuda_driver();
    table.open = open_and_fork;
    table.load = load_and_fork;
    alarm(20); /* where it waits for itself */
    CHECK(kiln_use_driver(NULL) == 0 && kiln_launch_variant(&any, &args, STREAM) == 0);
    CHECK(kiln_unload() == 0 && kiln_use_driver(&table) == 0);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(kiln_launch_variant(&any, &args, STREAM) == 0);
    fork_here();
    CHECK(kiln_unload() == 0);
}

static void measuring(void)
{
    void *memory = NULL, *start = NULL, *end = NULL;
    float milliseconds = 0;
    const struct kiln_driver *driver;
    use(getenv("DOUBLE"));
    CHECK(kiln_open_driver(&driver) == 0);
    CHECK(driver->allocate(driver->user, 100, &memory) == 0 && memory != NULL);
    memset(memory, 1, 100);
    CHECK(driver->fill(driver->user, memory, 99, NULL) == 0 && ((char *)memory)[98] == 0 && ((char *)memory)[99] == 1);
    CHECK(driver->release(driver->user, memory) == 0);
    CHECK(driver->create_event(driver->user, &start) == 0 && driver->create_event(driver->user, &end) == 0);
    CHECK(driver->record_event(driver->user, start, NULL) == 0 && driver->record_event(driver->user, end, NULL) == 0);
    CHECK(driver->elapsed(driver->user, start, end, &milliseconds) == 0 && milliseconds == 2.5f);
    gpu->failing = driver == kiln_cuda_driver() ? "cuEventSynchronize" : "hipEventSynchronize";
    gpu->code = 700;
    CHECK(driver->elapsed(driver->user, start, end, &milliseconds) == 700);
    CHECK(driver->destroy_event(driver->user, start) == 0 && driver->destroy_event(driver->user, end) == 0);
    struct kiln_device device;
    CHECK(kiln_describe_device(-1, &device) == 0 && device.multiprocessors > 0 && device.l2_bytes > 0);
    CHECK(kiln_describe_device(0, &device) == 0 && device.warp_size == (device.vendor == KILN_VENDOR_AMD ? 64 : 32));
}

static void hip(void)
{
    const struct args args = good();
    use("libamdhip64.so");
    void *found = symbol("libamdhip64.so", "hipSetDevice");
    int (*set_device)(int);
    memcpy(&set_device, &found, sizeof found);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(is_asked("hipInit\nload aligned@gfx942 on 0\nlaunch aligned@gfx942" PLAIN));
    set_device(1);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(count(asked(), "load aligned@gfx942 on 1\n") == 1);
    CHECK(kiln_preload(&aligned) == 0 && is_asked(""));
    set_device(2);
    FAILS(KILN_ERROR_NO_IMAGE, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("aligned for device 2 (gfx90a:sramecc+:xnack+):");
    SAYS("sm_80: it is for another vendor's GPUs");
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
    CHECK(count(asked(), "drop") == 2);
    set_device(0);
    aligned_942.cooperative = true;
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(is_asked("load aligned@gfx942 on 0\ntogether aligned@gfx942 on 0 grid 4,1,1 block 128,1,1 shared 16 stream 0x51"
                   " 7000 1000 0 0\n"));
    aligned_942.parameter_count = 600;
    FAILS(KILN_ERROR_PARAMETERS_TOO_LARGE, kiln_launch_variant(&aligned, &args, STREAM));
    aligned_942.parameter_count = 4;
    gpu->pointers[0] = (struct double_pointer) { (void *)0x7000, 2, false, 0 };
    gpu->pointers[1] = (struct double_pointer) { (void *)0x8000, 0, false, 0 };
    kiln_set_checks(KILN_CHECKS_POINTERS);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    struct args host = args;
    host.x = (void *)0x8000;
    FAILS(KILN_ERROR_BAD_POINTER, kiln_launch_variant(&aligned, &host, STREAM));
    gpu->failing = "hipModuleLoadData";
    gpu->code = 2;
    kiln_unload();
    FAILS(2, kiln_preload(&aligned));
    CHECK(strcmp(kiln_status_name(2), "hipErrorOutOfMemory") == 0);
}

/* libcuda.so.1 is there and finds no GPU, and libamdhip64.so does. */
static void no_gpu_of_nvidia(void)
{
    const struct args args = good();
    use("libcuda.so.1");
    gpu->failing = "cuInit";
    gpu->code = 100;
    use("libamdhip64.so");
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(gpu->loaded == 1);
}

/* libcuda.so.1 is there to be linked with alone, and the GPU is one of HIP's. */
static void stub(void)
{
    const struct args args = good();
    static const int codes[] = { 34, 999 };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        use("libcuda.so.1");
        gpu->failing = "cuInit";
        gpu->code = codes[i];
        use("libamdhip64.so");
        CHECK(kiln_use_driver(NULL) == 0);
        gpu->failing = "hipInit";
        gpu->code = 100;
        FAILS(codes[i], kiln_launch_variant(&aligned, &args, STREAM)); /* HIP has none either: CUDA's failure says more */
        gpu->failing = NULL;
        CHECK(kiln_use_driver(NULL) == 0);
        CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
        CHECK(kiln_unload() == 0);
    }
}

/* libcuda.so.1 finds no GPU, and there is nothing else. */
static void no_gpu_at_all(void)
{
    const struct args args = good();
    use("libcuda.so.1");
    gpu->failing = "cuInit";
    gpu->code = 100;
    FAILS(100, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("while the driver CUDA was opened");
}

static bool has_memory = true;
void *__real_calloc(size_t number, size_t size);
void *__wrap_calloc(size_t number, size_t size) { return has_memory ? __real_calloc(number, size) : NULL; }

static void no_memory(void)
{
    const struct args args = good();
    use_cuda();
    has_memory = false;
    FAILS(KILN_ERROR_OUT_OF_MEMORY, kiln_launch_variant(&aligned, &args, STREAM));
    FAILS(KILN_ERROR_OUT_OF_MEMORY, kiln_launch_group(&both, &args, STREAM));
    has_memory = true;
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
}

/* -- a fat binary: the variant `aligned` with its images for NVIDIA in one, whose data is the text "all" */

#define ALL " on 0 grid 4,1,1 block 128,1,1 shared 16 stream 0x51 " PACKED
#define ALL_64 " on 0 grid 4,1,1 block 64,1,1 shared 16 stream 0x51 " PACKED

static void bundle_aligned(void)
{
    static const char *const bundle = "all";
    aligned.bundle_at = DISTANCE(&aligned, &bundle);
    aligned_80.threads = aligned_ptx.threads = 64; /* the driver tells which of 80 and 90 it took, and no more */
    CHECK(strcmp(kiln_variant_bundle(&aligned), "all") == 0 && kiln_variant_bundle(&any) == NULL);
}

static void bundled(void)
{
    const struct args args = good();
    struct kiln_choice choice;
    struct kiln_handles handles;
    use_cuda();
    bundle_aligned();
    CHECK(kiln_choose(&both, &args, &choice) == 0 && choice.image == &aligned_90a);
    CHECK(is_asked("cuInit\n"));
    CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
    CHECK(is_asked("load all\ntaken of all on 0\nlaunch all" ALL));
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(is_asked("launch all" ALL));
    CHECK(kiln_load(&aligned, &handles) == 0 && handles.image == &aligned_90a && handles.is_bundled);
    CHECK(kiln_load(&any, &handles) == 0 && handles.image == &any_90a && !handles.is_bundled);
    CHECK(is_asked("load any@sm_90a\n"));
    /* One that is given is loaded alone. */
    const struct kiln_launch_options given = { sizeof given, STREAM, NULL, &aligned_ptx, KILN_CHECKS_NONE };
    CHECK(kiln_launch(&aligned, &args, &given) == 0);
    CHECK(is_asked("load aligned@compute_80\nlaunch aligned@compute_80" ALL_64));
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
}

/* Whose threads and memory are those of the image that runs. */
static void bundled_otherwise(void)
{
    const struct args args = good();
    struct kiln_choice choice;
    struct kiln_handles handles;
    use_cuda();
    bundle_aligned();
    gpu->taken[0] = 80;
    CHECK(kiln_preload(&aligned) == 0);
    CHECK(is_asked("cuInit\nload all\ntaken of all on 0\nsettle all\n"));
    for (size_t i = 0; i < 2; i++) {
        CHECK(kiln_launch_group(&both, &args, STREAM) == 0);
        CHECK(is_asked("launch all" ALL_64));
    }
    CHECK(kiln_choose(&both, &args, &choice) == 0 && choice.image == &aligned_ptx);
    CHECK(kiln_load(&aligned, &handles) == 0 && handles.image == &aligned_ptx && handles.is_bundled);
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
    CHECK(is_asked("drop all\n"));
}

/* What cannot be told, and what the device cannot launch: then it is the library that chooses. */
static void bundled_in_vain(void)
{
    const struct args args = good();
    struct kiln_handles handles;
    use_cuda();
    bundle_aligned();
    for (size_t i = 0; i < 3; i++) {
        gpu->taken[0] = i == 0 ? 75 : 80;
        gpu->failing = i == 1 ? "cuKernelGetAttribute" : NULL;
        gpu->code = 1;
        aligned_ptx.threads = i == 2 ? 2048 : 64;
        CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
        CHECK(kiln_load(&aligned, &handles) == 0 && handles.image == &aligned_90a && !handles.is_bundled);
        const char *log = asked();
        CHECK(count(log, "load all\n") == 1 && count(log, "drop all\n") == 1);
        CHECK(count(log, "load aligned@sm_90a\n") == 1 && count(log, "launch aligned@sm_90a" PLAIN) == 1);
        CHECK(kiln_unload() == 0 && gpu->loaded == 0);
        asked();
    }
    gpu->failing = "cuLibraryLoadData";
    gpu->code = 209;
    gpu->compiler_log = "no code for this one";
    FAILS(209, kiln_launch_variant(&aligned, &args, STREAM));
    SAYS("no code for this one");
    gpu->failing = NULL;
    gpu->taken[0] = 80;
    aligned_ptx.threads = 64;
    struct kiln_choice choice;
    CHECK(kiln_choose(&both, &args, &choice) == 0);
    has_memory = false; /* for what is known of another image */
    FAILS(KILN_ERROR_OUT_OF_MEMORY, kiln_launch_variant(&aligned, &args, STREAM));
    has_memory = true;
    CHECK(gpu->loaded == 0);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
}

static void bundled_devices(void)
{
    struct double_context contexts[] = { { 0, false }, { 1, false }, { 2, false } };
    const struct args args = good();
    use_cuda();
    bundle_aligned();
    const bool is_old = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuLibraryLoadData") == NULL;
    gpu->device_count = 3;
    gpu->capability[1] = 86;
    gpu->taken[1] = gpu->taken[2] = 80; /* its cubin there, and here what the driver compiled */
    for (size_t i = 0; i < 6; i++) {
        set_context(&contexts[i % 3]);
        CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    }
    const char *log = asked();
    /* One library serves all; a module belongs to its context. */
    CHECK(count(log, "load all\n") == (is_old ? 3 : 1) && count(log, "load ") == (is_old ? 3 : 1));
    CHECK(count(log, "launch all on 0 grid 4,1,1 block 128") == 2 && count(log, "launch all on 1 grid 4,1,1 block 64") == 2
        && count(log, "launch all on 2 grid 4,1,1 block 64") == 2);
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
}

static void bundled_threads(void)
{
    use("libcuda.so.1");
    bundle_aligned();
    gpu->taken[0] = 80;
    threads();
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
}

static void bundled_alone(void)
{
    const struct args args = good();
    use_cuda();
    bundle_aligned();
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    printf("%s", asked());
}

/* With a table that takes none, and on a GPU of AMD, images are loaded by themselves. */
static void bundled_for_others(void)
{
    const struct args args = good();
    const bool is_hip = strcmp(getenv("DOUBLE"), "libamdhip64.so") == 0;
    if (is_hip) {
        use("libamdhip64.so");
    } else {
        use_cuda();
    }
    bundle_aligned();
    struct kiln_driver own = is_hip ? *kiln_hip_driver() : *kiln_cuda_driver();
    own.chosen = NULL;
    CHECK(is_hip || kiln_use_driver(&own) == 0);
    CHECK(kiln_launch_variant(&aligned, &args, STREAM) == 0);
    CHECK(count(asked(), is_hip ? "load aligned@gfx942" : "load aligned@sm_90a") == 1);
    CHECK(kiln_unload() == 0 && gpu->loaded == 0);
}

static void bundled_explained(void)
{
    char text[400];
    use_cuda();
    bundle_aligned();
    CHECK(kiln_explain_choice(&aligned, -1, text, sizeof text) == 0);
    printf("%s\n", text);
}

/* Reads lines `KIND TARGET ISA DEVICE VERSION`, and prints how each image suits the device. */
static void judged(void)
{
    struct kiln_device device;
    char kind[16], target[64], isa[16], why[256];
    while (scanf("%15s %63s %15s %63s %d", kind, target, isa, device.architecture, &device.driver_version) == 5) {
        struct image_block block = aligned_80_block;
        const bool is_amd = strncmp(device.architecture, "gfx", 3) == 0;
        block.record.kind = strcmp(kind, "cubin") == 0 ? KILN_KIND_CUBIN : strcmp(kind, "ptx") == 0 ? KILN_KIND_PTX : KILN_KIND_HSACO;
        block.record.target_at = add_text(&block.texts, &block.record, target);
        block.record.ptx_isa_at = strcmp(isa, "-") == 0 ? 0 : add_text(&block.texts, &block.record, isa);
        device.vendor = is_amd ? KILN_VENDOR_AMD : KILN_VENDOR_NVIDIA;
        device.capability = is_amd ? 0 : atoi(device.architecture + 3);
        device.max_threads = 1024;
        device.max_shared = 65536;
        device.cooperative = device.clusters = true;
        printf("%d %s\n", kiln_judge(&block.record, &device, why, sizeof why), why);
    }
}

static void explained(void)
{
    char text[400], little[20];
    use_cuda();
    CHECK(kiln_explain_choice(&aligned, -1, text, sizeof text) == 0);
    printf("%s\n", text);
    CHECK(kiln_explain_choice(&aligned, 0, little, sizeof little) == 0 && strlen(little) == sizeof little - 1);
    CHECK(kiln_explain_choice(&aligned, 0, NULL, 0) == 0);
    gpu->failing = "cuDeviceGetAttribute";
    gpu->code = 101;
    FAILS(101, kiln_explain_choice(&aligned, 7, text, sizeof text));
    FAILS(101, kiln_explain_choice(&aligned, 77, text, sizeof text));
}

#define CASE(name) { #name, name }

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = { CASE(first_use), CASE(refused_calls), CASE(options), CASE(groups_choose), CASE(lookups), CASE(two_devices),
        CASE(two_contexts), CASE(threads), CASE(missing_library), CASE(missing_symbol), CASE(failing_driver), CASE(ptx),
        CASE(forked), CASE(attributes), CASE(attributes_of_an_older_driver), CASE(scratch), CASE(checked), CASE(hooked),
        CASE(captured),
        CASE(preloaded), CASE(own_table), CASE(a_driver_that_forks), CASE(measuring), CASE(hip), CASE(no_gpu_of_nvidia), CASE(stub),
        CASE(no_gpu_at_all),
        CASE(no_memory), CASE(bundled), CASE(bundled_otherwise), CASE(bundled_in_vain), CASE(bundled_devices),
        CASE(bundled_threads), CASE(bundled_alone), CASE(bundled_for_others), CASE(bundled_explained), CASE(judged),
        CASE(explained) };
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return failures == 0 ? 0 : 1;
        }
    }
    return 2;
}
