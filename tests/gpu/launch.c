/* Launches images of the library kernels on the first GPU, by the library's own launches: no CUDA header, no Python, and no
 * word of any kernel. Arguments are set by what the library tells of its variants, and the grid that it computes is held
 * against the one that is asked for.
 *
 *     launch JOBS
 *
 * JOBS is a file of words. `refuse VARIANT TARGET` loads an image that the GPU cannot run. A launch is
 *
 *     launch VARIANT TARGET GRID_X GRID_Y GRID_Z
 *     scalar NAME HEX                     the bytes of an argument or a launch input, as they lie in memory
 *     input NAME BYTES ALIGN PATH         what lies behind a pointer; it must be the same after the launch
 *     output NAME BYTES ALIGN PATH        filled with 0xff before the launch, written to PATH after it
 *     zero NAME BYTES ALIGN               memory to work in
 *     go
 *
 * An address is a multiple of what the variant promises, or of ALIGN where it promises nothing, and of no more. Before and
 * behind each buffer lies a margin that must not change. For each launch a line goes to standard output: `ok NUMBER` or
 * `failed NUMBER WHY`, and for each refusal `refused VARIANT TARGET ERROR`. The exit code is 1 when a launch failed.
 */
#include <dlfcn.h>
#include <stdarg.h>
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
typedef unsigned long long CUdeviceptr;

enum { FUNC_SHARED_SIZE_BYTES = 1, FUNC_LOCAL_SIZE_BYTES = 3, FUNC_NUM_REGS = 4 };

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

static bool load_driver(void)
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
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (found == NULL) {
            fprintf(stderr, "libcuda has no %s\n", symbols[i].name);
            return false;
        }
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    return true;
}

enum { MAX_BUFFERS = 32, MAX_ARGS_BYTES = 4096, MARGIN = 256, NAME = 128, PATH = 1024 };

enum buffer_kind { INPUT, OUTPUT, WORKSPACE, SCRATCH };

struct buffer {
    enum buffer_kind kind;
    char name[NAME];
    char path[PATH];
    size_t size, shift; /* bytes; the buffer begins `shift` bytes behind `memory` */
    CUdeviceptr memory; /* of shift + size + MARGIN bytes */
    unsigned char *before; /* what all of it held before the launch */
};

/* One launch, as it is put together. */
struct job {
    const struct kernels_variant *variant;
    const struct kernels_image *image;
    uint32_t grid[3];
    uint64_t args[MAX_ARGS_BYTES / 8]; /* the variant's argument struct */
    bool given[MAX_ARGS_BYTES]; /* by offset */
    struct buffer buffers[MAX_BUFFERS];
    size_t buffer_count;
    char failure[256]; /* empty while all is well */
};

static void fail(struct job *job, const char *format, ...)
{
    va_list values;
    if (job->failure[0] != '\0') return; /* what goes wrong first is the cause of the rest */
    va_start(values, format);
    vsnprintf(job->failure, sizeof job->failure, format, values);
    va_end(values);
}

/* Calls the driver unless something has gone wrong before. */
#define DRIVER(job, call) \
    do { \
        if ((job)->failure[0] == '\0') { \
            CUresult result = call; \
            if (result != 0) fail(job, "%s is %d", #call, result); \
        } \
    } while (0)

/* Puts an argument where the variant's struct has it. */
static void set_argument(struct job *job, const char *name, const void *data, size_t size)
{
    if (job->failure[0] != '\0') return;
    for (uint32_t i = 0; i < job->variant->argument_count; i++) {
        const struct kernels_argument *argument = &kernels_variant_arguments(job->variant)[i];
        if (strcmp(kernels_argument_name(argument), name) != 0) continue;
        if (argument->size != size) fail(job, "%s has %zu bytes, and the struct %u", name, size, argument->size);
        if (job->given[argument->offset]) fail(job, "%s is given twice", name);
        if (job->failure[0] != '\0') return;
        memcpy((unsigned char *)job->args + argument->offset, data, size);
        job->given[argument->offset] = true;
        return;
    }
    fail(job, "the variant takes no %s", name);
}

static void set_scalar(struct job *job, const char *name, const char *hex)
{
    unsigned char data[16];
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size && i < sizeof data; i++) {
        char digits[3] = { hex[2 * i], hex[2 * i + 1], '\0' };
        data[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    set_argument(job, name, data, size);
}

static void read_file(struct job *job, const char *path, void *data, size_t size)
{
    FILE *file = fopen(path, "rb");
    size_t got = file == NULL ? 0 : fread(data, 1, size, file);
    if (file != NULL) fclose(file);
    if (got != size) fail(job, "%s has %zu bytes of %zu", path, got, size);
}

static void write_file(struct job *job, const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    size_t put = file == NULL ? 0 : fwrite(data, 1, size, file);
    if (file == NULL || fclose(file) != 0 || put != size) fail(job, "%s cannot be written", path);
}

/* Adds a buffer between margins, at an address that is a multiple of `align` and not of twice that. */
static CUdeviceptr add_buffer(struct job *job, enum buffer_kind kind, const char *name, size_t size, size_t align,
                              const char *path)
{
    struct buffer *buffer = &job->buffers[job->buffer_count];
    size_t total;
    if (job->failure[0] != '\0') return 0;
    if (job->buffer_count == MAX_BUFFERS || align == 0 || align > MARGIN / 2) {
        fail(job, "%s is one buffer too many, or its alignment of %zu is none", name, align);
        return 0;
    }
    job->buffer_count++;
    *buffer = (struct buffer){ .kind = kind, .size = size, .shift = MARGIN + align };
    snprintf(buffer->name, sizeof buffer->name, "%s", name);
    snprintf(buffer->path, sizeof buffer->path, "%s", path);
    total = buffer->shift + size + MARGIN;
    buffer->before = malloc(total);
    if (buffer->before == NULL) {
        fail(job, "out of memory");
        return 0;
    }
    memset(buffer->before, 0xff, total);
    if (kind == INPUT) read_file(job, path, buffer->before + buffer->shift, size);
    if (kind == WORKSPACE) memset(buffer->before + buffer->shift, 0, size);
    DRIVER(job, cuMemAlloc(&buffer->memory, total));
    DRIVER(job, cuMemcpyHtoD(buffer->memory, buffer->before, total));
    if (buffer->memory % MARGIN != 0) fail(job, "the driver's memory is aligned to less than %d", MARGIN);
    return buffer->memory + buffer->shift;
}

static void set_pointer(struct job *job, enum buffer_kind kind, const char *name, size_t size, size_t align,
                        const char *path)
{
    CUdeviceptr address;
    if (job->failure[0] != '\0') return;
    for (uint32_t i = 0; i < job->variant->argument_count; i++) {
        const struct kernels_argument *argument = &kernels_variant_arguments(job->variant)[i];
        if (strcmp(kernels_argument_name(argument), name) == 0 && argument->promise != 0) align = argument->promise;
    }
    address = add_buffer(job, kind, name, size, align, path);
    set_argument(job, name, &address, sizeof address);
}

/* Scratch memory lies between margins too, and goes with the job's other buffers. */
static void *give_scratch(void *job, size_t bytes, size_t align, struct CUstream_st *stream, int32_t device)
{
    (void)stream;
    (void)device;
    return (void *)(uintptr_t)add_buffer(job, SCRATCH, "scratch", bytes, align, "");
}

static void keep_scratch(void *job, void *address, struct CUstream_st *stream, int32_t device)
{
    (void)job;
    (void)address;
    (void)stream;
    (void)device;
}

/* The driver's own view must be the facts': parameters, hidden pointers included, and what a thread and a block take. */
static void check_function(struct job *job, CUfunction function)
{
    const struct kernels_image *image = job->image;
    size_t offset = 0, size = 0;
    int shared = 0, local = 0, registers = 0;
    for (uint32_t i = 0; i < image->parameter_count; i++) {
        DRIVER(job, cuFuncGetParamInfo(function, i, &offset, &size));
        const struct kernels_parameter *parameter = &kernels_image_parameters(image)[i];
        if (offset != parameter->offset || size != parameter->size) {
            fail(job, "the driver has parameter %u at %zu, of %zu bytes", i, offset, size);
        }
    }
    if (cuFuncGetParamInfo(function, image->parameter_count, &offset, &size) == 0) {
        fail(job, "the driver has more than %u parameters", image->parameter_count);
    }
    DRIVER(job, cuFuncGetAttribute(&shared, FUNC_SHARED_SIZE_BYTES, function));
    DRIVER(job, cuFuncGetAttribute(&local, FUNC_LOCAL_SIZE_BYTES, function));
    DRIVER(job, cuFuncGetAttribute(&registers, FUNC_NUM_REGS, function));
    if (shared != (int)image->shared_static) fail(job, "the driver counts %d bytes of static shared memory", shared);
    if (image->kind == KERNELS_KIND_PTX) return; /* the driver's own compiler chose the rest */
    if (registers != image->registers) fail(job, "the driver counts %d registers", registers);
    if (local != image->stack) fail(job, "the driver counts %d bytes of stack", local);
}

static void launch(struct job *job)
{
    const struct kernels_variant *variant = job->variant;
    const struct kernels_scratch_allocator scratch = { job, give_scratch, keep_scratch };
    const struct kernels_launch_options options = { .struct_bytes = sizeof options, .image = job->image };
    uint32_t grid[3] = { 0, 0, 0 };
    int status;
    for (uint32_t i = 0; i < variant->argument_count; i++) {
        const struct kernels_argument *argument = &kernels_variant_arguments(variant)[i];
        if (!job->given[argument->offset]) fail(job, "%s is not given", kernels_argument_name(argument));
    }
    if (job->failure[0] != '\0') return;
    if (kernels_variant_grid(variant, job->args, grid) != KERNELS_GRID_OK || memcmp(grid, job->grid, sizeof grid) != 0) {
        fail(job, "the library's grid is %u by %u by %u", grid[0], grid[1], grid[2]);
        return;
    }
    kernels_set_scratch_allocator(&scratch);
    status = kernels_launch(variant, job->args, &options);
    kernels_set_scratch_allocator(NULL);
    if (status != 0) {
        fail(job, "%s: %s", kernels_status_name(status), kernels_last_error()->detail);
        for (char *end = job->failure; (end = strchr(end, '\n')) != NULL;) *end = ' '; /* a failure is one line */
    }
    DRIVER(job, cuCtxSynchronize());
}

/* Margins and inputs are as before; outputs go to their files. */
static void check_buffer(struct job *job, const struct buffer *buffer)
{
    size_t total = buffer->shift + buffer->size + MARGIN, end = buffer->shift + buffer->size;
    unsigned char *after = malloc(total);
    if (after == NULL) {
        fail(job, "out of memory");
        return;
    }
    DRIVER(job, cuMemcpyDtoH(after, buffer->memory, total));
    if (job->failure[0] == '\0') {
        if (memcmp(after, buffer->before, buffer->shift) != 0) fail(job, "it wrote before %s", buffer->name);
        if (memcmp(after + end, buffer->before + end, MARGIN) != 0) fail(job, "it wrote behind %s", buffer->name);
        if (buffer->kind == INPUT && memcmp(after, buffer->before, total) != 0) fail(job, "it changed %s", buffer->name);
        if (buffer->kind == OUTPUT) write_file(job, buffer->path, after + buffer->shift, buffer->size);
    }
    free(after);
}

/* Holds an image that is new against what the driver says of it; the library loads it for itself. */
static void check_image(struct job *job)
{
    static const struct kernels_image *checked;
    CUmodule module = NULL;
    CUfunction function = NULL;
    if (checked == job->image || job->failure[0] != '\0') return;
    if (!kernels_image_verify(job->image)) fail(job, "the image's bytes are damaged");
    DRIVER(job, cuModuleLoadData(&module, kernels_image_data(job->image)));
    DRIVER(job, cuModuleGetFunction(&function, module, kernels_image_entry(job->image)));
    if (job->failure[0] == '\0') check_function(job, function);
    if (module != NULL) cuModuleUnload(module);
    if (job->failure[0] == '\0') checked = job->image;
}

static void run(struct job *job)
{
    check_image(job);
    launch(job);
    for (size_t i = 0; i < job->buffer_count; i++) {
        if (job->failure[0] == '\0') check_buffer(job, &job->buffers[i]);
        if (job->buffers[i].memory != 0) cuMemFree(job->buffers[i].memory);
        free(job->buffers[i].before);
    }
}

/* Loads an image for another GPU, which the driver must answer with an error. */
static bool refuse(const char *variant, const char *target)
{
    const struct kernels_image *image = kernels_image_find(variant, target);
    CUmodule module = NULL;
    CUresult result;
    if (image == NULL) {
        fprintf(stderr, "there is no image of %s for %s\n", variant, target);
        return false;
    }
    result = cuModuleLoadData(&module, kernels_image_data(image));
    printf("refused %s %s %d\n", variant, target, result);
    if (module != NULL) cuModuleUnload(module);
    return true;
}

int main(int argc, char **argv)
{
    static struct job job;
    char word[16], variant[NAME], target[NAME], name[NAME], text[PATH];
    size_t size, align;
    int number = 0, failed = 0;
    CUdevice device;
    CUcontext context;
    FILE *jobs = argc == 2 ? fopen(argv[1], "r") : NULL;

    if (jobs == NULL || !load_driver()) return 2;
    if (cuInit(0) != 0 || cuDeviceGet(&device, 0) != 0 || cuDevicePrimaryCtxRetain(&context, device) != 0) return 2;
    if (cuCtxSetCurrent(context) != 0) return 2;
    while (fscanf(jobs, "%15s", word) == 1) {
        if (strcmp(word, "refuse") == 0 && fscanf(jobs, "%127s %127s", variant, target) == 2) {
            if (!refuse(variant, target)) return 2;
        } else if (strcmp(word, "launch") == 0 && fscanf(jobs, "%127s %127s", variant, target) == 2) {
            memset(&job, 0, sizeof job);
            job.variant = kernels_variant_find(variant);
            job.image = kernels_image_find(variant, target);
            if (job.variant == NULL || job.image == NULL || job.variant->args_bytes > MAX_ARGS_BYTES) return 2;
            if (fscanf(jobs, "%u %u %u", &job.grid[0], &job.grid[1], &job.grid[2]) != 3) return 2;
        } else if (job.image == NULL) {
            fprintf(stderr, "%s: %s after %d launches, and no launch is begun\n", argv[1], word, number);
            return 2;
        } else if (strcmp(word, "scalar") == 0 && fscanf(jobs, "%127s %1023s", name, text) == 2) {
            set_scalar(&job, name, text);
        } else if (strcmp(word, "input") == 0 && fscanf(jobs, "%127s %zu %zu %1023s", name, &size, &align, text) == 4) {
            set_pointer(&job, INPUT, name, size, align, text);
        } else if (strcmp(word, "output") == 0 && fscanf(jobs, "%127s %zu %zu %1023s", name, &size, &align, text) == 4) {
            set_pointer(&job, OUTPUT, name, size, align, text);
        } else if (strcmp(word, "zero") == 0 && fscanf(jobs, "%127s %zu %zu", name, &size, &align) == 3) {
            set_pointer(&job, WORKSPACE, name, size, align, "");
        } else if (strcmp(word, "go") == 0) {
            run(&job);
            if (job.failure[0] == '\0') printf("ok %d\n", number);
            else printf("failed %d %s\n", number, job.failure);
            fflush(stdout);
            failed |= job.failure[0] != '\0';
            number++;
            job.image = NULL;
        } else {
            fprintf(stderr, "%s: what comes after %d launches, at %s, is no job\n", argv[1], number, word);
            return 2;
        }
    }
    fclose(jobs);
    return failed;
}
