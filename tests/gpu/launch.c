/* Launches images of the library kernels on the first GPU, from the archive and its records alone: no CUDA header, no
 * Python, and no word of any kernel.
 *
 *     launch JOBS
 *
 * JOBS is a file of words. `refuse VARIANT TARGET` loads an image that the GPU cannot run. A launch is
 *
 *     launch VARIANT TARGET GRID_X GRID_Y GRID_Z
 *     scalar NAME HEX                     an argument's bytes, as they lie in memory
 *     input NAME BYTES ALIGN PATH         what lies behind a pointer; it must be the same after the launch
 *     output NAME BYTES ALIGN PATH        filled with 0xff before the launch, written to PATH after it
 *     zero NAME BYTES ALIGN               memory to work in
 *     go
 *
 * An address is a multiple of what the record promises, or of ALIGN where it promises nothing, and of no more. Before and
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
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;

typedef struct {
    int id; /* CU_LAUNCH_ATTRIBUTE_... */
    char pad[4];
    union {
        char pad[64];
        struct {
            unsigned x, y, z;
        } cluster_dimension;
        int cooperative;
    } value;
} CUlaunchAttribute;

typedef struct {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    CUstream stream;
    CUlaunchAttribute *attributes;
    unsigned attribute_count;
} CUlaunchConfig;

enum { LAUNCH_ATTRIBUTE_COOPERATIVE = 2, LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4 };
enum { FUNC_SHARED_SIZE_BYTES = 1, FUNC_LOCAL_SIZE_BYTES = 3, FUNC_NUM_REGS = 4, FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

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
static CUresult (*cuFuncSetAttribute)(CUfunction, int, int);
static CUresult (*cuMemAlloc)(CUdeviceptr *, size_t);
static CUresult (*cuMemFree)(CUdeviceptr);
static CUresult (*cuMemcpyHtoD)(CUdeviceptr, const void *, size_t);
static CUresult (*cuMemcpyDtoH)(void *, CUdeviceptr, size_t);
static CUresult (*cuLaunchKernelEx)(const CUlaunchConfig *, CUfunction, void **, void **);

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
        { "cuFuncSetAttribute", &cuFuncSetAttribute },
        { "cuMemAlloc_v2", &cuMemAlloc },
        { "cuMemFree_v2", &cuMemFree },
        { "cuMemcpyHtoD_v2", &cuMemcpyHtoD },
        { "cuMemcpyDtoH_v2", &cuMemcpyDtoH },
        { "cuLaunchKernelEx", &cuLaunchKernelEx },
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

enum { MAX_BUFFERS = 32, MAX_PARAMETER_BYTES = 4096, MARGIN = 256, NAME = 128, PATH = 1024 };

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
    const struct kernels_image *image;
    unsigned grid[3];
    unsigned char parameters[MAX_PARAMETER_BYTES];
    bool given[MAX_PARAMETER_BYTES]; /* by offset */
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

/* The promise of an argument to be 1 leaves no parameter: it is a constant of the image. */
static bool is_folded(const struct kernels_image *image, const char *name, const unsigned char *data, size_t size)
{
    int64_t value = 0;
    memcpy(&value, data, size < sizeof value ? size : sizeof value);
    for (uint32_t i = 0; i < image->constant_count; i++) {
        if (strcmp(image->constants[i].name, name) == 0) return image->constants[i].value == 1 && value == 1;
    }
    return false;
}

/* Puts an argument where the record says. */
static const struct kernels_parameter *set_argument(struct job *job, const char *name, const void *data, size_t size)
{
    const struct kernels_image *image = job->image;
    if (job->failure[0] != '\0') return NULL;
    for (uint32_t i = 0; i < image->parameter_count; i++) {
        const struct kernels_parameter *parameter = &image->parameters[i];
        if (parameter->role != KERNELS_ROLE_USER || strcmp(parameter->name, name) != 0) continue;
        if (parameter->size != size) fail(job, "%s has %zu bytes, and the record says %u", name, size, parameter->size);
        if (job->given[parameter->offset]) fail(job, "%s is given twice", name);
        if (job->failure[0] != '\0') return NULL;
        memcpy(job->parameters + parameter->offset, data, size);
        job->given[parameter->offset] = true;
        return parameter;
    }
    if (!is_folded(image, name, data, size)) fail(job, "the image takes no %s", name);
    return NULL;
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
    for (uint32_t i = 0; i < job->image->parameter_count; i++) {
        const struct kernels_parameter *parameter = &job->image->parameters[i];
        if (strcmp(parameter->name, name) == 0 && parameter->promise != 0) align = parameter->promise;
    }
    address = add_buffer(job, kind, name, size, align, path);
    set_argument(job, name, &address, sizeof address);
}

/* Gives the hidden parameters their memory: bytes for each block of the grid and each block of its cluster. */
static void set_scratch(struct job *job)
{
    const struct kernels_image *image = job->image;
    size_t blocks = (size_t)job->grid[0] * job->grid[1] * job->grid[2];
    blocks *= (size_t)image->cluster[0] * image->cluster[1] * image->cluster[2];
    for (uint32_t i = 0; i < image->parameter_count; i++) {
        const struct kernels_parameter *parameter = &image->parameters[i];
        bool is_global = parameter->role == KERNELS_ROLE_GLOBAL_SCRATCH;
        uint64_t bytes = is_global ? image->global_scratch_bytes : image->profile_scratch_bytes;
        size_t align = is_global ? image->global_scratch_align : image->profile_scratch_align;
        CUdeviceptr address;
        if (parameter->role == KERNELS_ROLE_USER) {
            if (!job->given[parameter->offset]) fail(job, "%s is not given", parameter->name);
            continue;
        }
        address = bytes == 0 ? 0 : add_buffer(job, SCRATCH, "scratch", blocks * (size_t)bytes, align, "");
        memcpy(job->parameters + parameter->offset, &address, sizeof address);
    }
}

/* The driver's own view must be the facts': parameters, hidden pointers included, and what a thread and a block take. */
static void check_function(struct job *job, CUfunction function)
{
    const struct kernels_image *image = job->image;
    size_t offset = 0, size = 0;
    int shared = 0, local = 0, registers = 0;
    for (uint32_t i = 0; i < image->parameter_count; i++) {
        DRIVER(job, cuFuncGetParamInfo(function, i, &offset, &size));
        if (offset != image->parameters[i].offset || size != image->parameters[i].size) {
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

static void launch(struct job *job, CUfunction function)
{
    const struct kernels_image *image = job->image;
    size_t size = image->parameter_bytes;
    void *extra[] = { (void *)1, job->parameters, (void *)2, &size, (void *)0 }; /* CU_LAUNCH_PARAM_BUFFER_POINTER, ... */
    CUlaunchAttribute attributes[2];
    CUlaunchConfig config = { .grid_x = job->grid[0] * image->cluster[0],
                              .grid_y = job->grid[1] * image->cluster[1],
                              .grid_z = job->grid[2] * image->cluster[2],
                              .block_x = image->threads,
                              .block_y = 1,
                              .block_z = 1,
                              .shared_bytes = image->shared_dynamic,
                              .attributes = attributes };
    memset(attributes, 0, sizeof attributes);
    if (image->pdl) fail(job, "programmatic dependent launch needs two launches, and this is one");
    if (image->cluster[0] * image->cluster[1] * image->cluster[2] > 1) {
        CUlaunchAttribute *attribute = &attributes[config.attribute_count++];
        attribute->id = LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute->value.cluster_dimension.x = image->cluster[0];
        attribute->value.cluster_dimension.y = image->cluster[1];
        attribute->value.cluster_dimension.z = image->cluster[2];
    }
    if (image->cooperative) {
        CUlaunchAttribute *attribute = &attributes[config.attribute_count++];
        attribute->id = LAUNCH_ATTRIBUTE_COOPERATIVE;
        attribute->value.cooperative = 1;
    }
    if (image->shared_static + image->shared_dynamic > 48 * 1024) {
        DRIVER(job, cuFuncSetAttribute(function, FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)image->shared_dynamic));
    }
    DRIVER(job, cuLaunchKernelEx(&config, function, NULL, extra));
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

/* The image that is loaded, for its next launch: the driver compiles a PTX each time that it is loaded. */
static struct {
    const struct kernels_image *image;
    CUmodule module;
    CUfunction function;
} loaded;

static void load(struct job *job)
{
    if (loaded.image == job->image || job->failure[0] != '\0') return;
    if (loaded.module != NULL) cuModuleUnload(loaded.module);
    memset(&loaded, 0, sizeof loaded);
    if (!kernels_image_verify(job->image)) fail(job, "the image's bytes are damaged");
    DRIVER(job, cuModuleLoadData(&loaded.module, job->image->data));
    DRIVER(job, cuModuleGetFunction(&loaded.function, loaded.module, job->image->entry));
    if (job->failure[0] == '\0') check_function(job, loaded.function);
    if (job->failure[0] == '\0') loaded.image = job->image;
}

static void run(struct job *job)
{
    set_scratch(job);
    load(job);
    if (job->failure[0] == '\0') launch(job, loaded.function);
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
    result = cuModuleLoadData(&module, image->data);
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
            job.image = kernels_image_find(variant, target);
            if (job.image == NULL || job.image->parameter_bytes > MAX_PARAMETER_BYTES) return 2;
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
