/* The driver of NVIDIA, as "CUDA Driver API" documents it, without its header.
 *
 * Drivers of CUDA 12.0 and later load a library once for all contexts of all devices (cuLibraryLoadData); with older ones
 * each context has modules of its own.
 */
#include "symbols.h"

#include <stdio.h>
#include <string.h>

#ifndef KILN_DISABLED

typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef unsigned long long CUdeviceptr;

typedef struct {
    int id;
    char pad[4];
    union {
        char pad[64];
        struct {
            unsigned int x, y, z;
        } clusterDim;
        int cooperative;
        int programmaticStreamSerializationAllowed;
    } value;
} CUlaunchAttribute;

typedef struct {
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

enum {
    CUDA_ERROR_INVALID_VALUE = 1,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120,
    CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_MEMORYTYPE_HOST = 1,
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_EVENT_DEFAULT = 0
};

/* Blocks of a cluster that every device with clusters takes; more are asked for. */
enum { PORTABLE_CLUSTER = 8 };

/* Shared memory that a block gets without asking for it, static and dynamic together. */
enum { PLAIN_SHARED = 48 * 1024 };

static struct {
    int (*cuInit)(unsigned int);
    int (*cuDriverGetVersion)(int *);
    int (*cuGetErrorName)(int, const char **);
    int (*cuGetErrorString)(int, const char **);
    int (*cuDeviceGetCount)(int *);
    int (*cuDeviceGetAttribute)(int *, int, CUdevice);
    int (*cuDeviceGetName)(char *, int, CUdevice);
    int (*cuCtxGetCurrent)(CUcontext *);
    int (*cuCtxGetDevice)(CUdevice *);
    int (*cuCtxPushCurrent)(CUcontext);
    int (*cuCtxPopCurrent)(CUcontext *);
    int (*cuModuleLoadDataEx)(CUmodule *, const void *, unsigned int, int *, void **);
    int (*cuModuleUnload)(CUmodule);
    int (*cuModuleGetFunction)(CUfunction *, CUmodule, const char *);
    int (*cuFuncGetAttribute)(int *, int, CUfunction);
    int (*cuFuncSetAttribute)(CUfunction, int, int);
    int (*cuFuncLoad)(CUfunction);
    int (*cuLibraryLoadData)(CUlibrary *, const void *, int *, void **, unsigned int, int *, void **, unsigned int);
    int (*cuLibraryUnload)(CUlibrary);
    int (*cuLibraryGetKernel)(CUkernel *, CUlibrary, const char *);
    int (*cuKernelGetAttribute)(int *, int, CUkernel, CUdevice);
    int (*cuKernelSetAttribute)(int, int, CUkernel, CUdevice);
    int (*cuKernelGetFunction)(CUfunction *, CUkernel);
    int (*cuLaunchKernel)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
        unsigned int, CUstream, void **, void **);
    int (*cuLaunchKernelEx)(const CUlaunchConfig *, CUfunction, void **, void **);
    int (*cuStreamIsCapturing)(CUstream, int *);
    int (*cuPointerGetAttribute)(void *, int, CUdeviceptr);
    int (*cuMemAlloc)(CUdeviceptr *, size_t);
    int (*cuMemFree)(CUdeviceptr);
    int (*cuMemsetD8Async)(CUdeviceptr, unsigned char, size_t, CUstream);
    int (*cuEventCreate)(CUevent *, unsigned int);
    int (*cuEventDestroy)(CUevent);
    int (*cuEventRecord)(CUevent, CUstream);
    int (*cuEventSynchronize)(CUevent);
    int (*cuEventElapsedTime)(float *, CUevent, CUevent);
} api;

static bool has_libraries; /* whether what is loaded serves all contexts */
static int device_count;
static int driver_version;

/* What the compiler in the driver says. It may be written while a function is put into a context, after the call that
 * loaded it: so it is no local variable. */
static char compiler_log[4096];

static int open_cuda(void *user)
{
    static const char *const names[] = { "libcuda.so.1", NULL };
    static const struct kiln_symbol symbols[] = {
        { "cuInit", &api.cuInit, true },
        { "cuDriverGetVersion", &api.cuDriverGetVersion, true },
        { "cuGetErrorName", &api.cuGetErrorName, true },
        { "cuGetErrorString", &api.cuGetErrorString, true },
        { "cuDeviceGetCount", &api.cuDeviceGetCount, true },
        { "cuDeviceGetAttribute", &api.cuDeviceGetAttribute, true },
        { "cuDeviceGetName", &api.cuDeviceGetName, false },
        { "cuCtxGetCurrent", &api.cuCtxGetCurrent, true },
        { "cuCtxGetDevice", &api.cuCtxGetDevice, true },
        { "cuCtxPushCurrent_v2", &api.cuCtxPushCurrent, true },
        { "cuCtxPopCurrent_v2", &api.cuCtxPopCurrent, true },
        { "cuModuleLoadDataEx", &api.cuModuleLoadDataEx, true },
        { "cuModuleUnload", &api.cuModuleUnload, true },
        { "cuModuleGetFunction", &api.cuModuleGetFunction, true },
        { "cuFuncGetAttribute", &api.cuFuncGetAttribute, true },
        { "cuFuncSetAttribute", &api.cuFuncSetAttribute, true },
        { "cuFuncLoad", &api.cuFuncLoad, false },
        { "cuLibraryLoadData", &api.cuLibraryLoadData, false },
        { "cuLibraryUnload", &api.cuLibraryUnload, false },
        { "cuLibraryGetKernel", &api.cuLibraryGetKernel, false },
        { "cuKernelGetAttribute", &api.cuKernelGetAttribute, false },
        { "cuKernelSetAttribute", &api.cuKernelSetAttribute, false },
        { "cuKernelGetFunction", &api.cuKernelGetFunction, false },
        { "cuLaunchKernel", &api.cuLaunchKernel, true },
        { "cuLaunchKernelEx", &api.cuLaunchKernelEx, false },
        { "cuStreamIsCapturing", &api.cuStreamIsCapturing, true },
        { "cuPointerGetAttribute", &api.cuPointerGetAttribute, true },
        { "cuMemAlloc_v2", &api.cuMemAlloc, true },
        { "cuMemFree_v2", &api.cuMemFree, true },
        { "cuMemsetD8Async", &api.cuMemsetD8Async, true },
        { "cuEventCreate", &api.cuEventCreate, true },
        { "cuEventDestroy_v2", &api.cuEventDestroy, true },
        { "cuEventRecord", &api.cuEventRecord, true },
        { "cuEventSynchronize", &api.cuEventSynchronize, true },
        { "cuEventElapsedTime", &api.cuEventElapsedTime, true },
    };
    (void)user;
    char why[200] = "";
    void *library = kiln_open_library(names, why, sizeof why);
    if (library == NULL) {
        return kiln_fail(KILN_ERROR_DRIVER_NOT_FOUND, "dlopen", "%s", why);
    }
    int code = kiln_resolve(library, "libcuda.so.1", symbols, sizeof symbols / sizeof *symbols, "CUDA 11.0 at the latest");
    if (code == 0) {
        code = api.cuInit(0);
    }
    if (code == 0) {
        code = api.cuDriverGetVersion(&driver_version);
    }
    if (code == 0) {
        code = api.cuDeviceGetCount(&device_count);
    }
    has_libraries = api.cuLibraryLoadData != NULL && api.cuLibraryUnload != NULL && api.cuLibraryGetKernel != NULL
        && api.cuKernelGetAttribute != NULL && api.cuKernelSetAttribute != NULL && api.cuKernelGetFunction != NULL;
    return code;
}

static int current(void *user, struct kiln_current *found)
{
    (void)user;
    found->device = 0;
    found->scope = 0;
    if (has_libraries) {
        /* Where there is one device, the launch itself notices whether a context is current. */
        return device_count == 1 ? 0 : api.cuCtxGetDevice(&found->device);
    }
    CUcontext context = NULL;
    const int code = api.cuCtxGetCurrent(&context);
    found->scope = (uint64_t)(uintptr_t)context;
    return code != 0 ? code : api.cuCtxGetDevice(&found->device);
}

static int describe(void *user, int32_t device, struct kiln_device *described)
{
    (void)user;
    int major = 0, minor = 0, warp = 0, threads = 0, shared = 0, processors = 0, l2 = 0, cooperative = 0, pageable = 0;
    const struct {
        int attribute;
        int *value;
    } asked[] = {
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major },
        { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor },
        { CU_DEVICE_ATTRIBUTE_WARP_SIZE, &warp },
        { CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads },
        { CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared },
        { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &processors },
        { CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2 },
        { CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, &cooperative },
        { CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, &pageable },
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const int code = api.cuDeviceGetAttribute(asked[i].value, asked[i].attribute, device);
        if (code != 0) {
            return code;
        }
    }
    int clusters = 0;
    if (api.cuDeviceGetAttribute(&clusters, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, device) != 0) {
        clusters = 0; /* a driver that does not know the attribute launches none */
    }
    if (api.cuDeviceGetName == NULL || api.cuDeviceGetName(described->name, sizeof described->name, device) != 0) {
        described->name[0] = '\0';
    }
    described->vendor = KILN_VENDOR_NVIDIA;
    described->ordinal = device;
    described->capability = 10 * major + minor;
    snprintf(described->architecture, sizeof described->architecture, "sm_%d%d", major, minor);
    described->driver_version = driver_version;
    described->warp_size = (uint32_t)warp;
    described->max_threads = (uint32_t)threads;
    described->max_shared = (uint32_t)shared;
    described->multiprocessors = (uint32_t)processors;
    described->l2_bytes = (uint32_t)l2;
    described->cooperative = cooperative != 0;
    described->clusters = clusters != 0 && api.cuLaunchKernelEx != NULL;
    described->pageable_access = pageable != 0;
    return 0;
}

static int load(
    void *user, const struct kiln_image *image, const void *data, void **module, char *log, size_t log_bytes)
{
    (void)user;
    const bool may_compile = image->kind == KILN_KIND_PTX || data != kiln_data_of(image);
    int options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
    void *values[] = { compiler_log, (void *)(uintptr_t)(sizeof compiler_log - 1) };
    const unsigned int count = may_compile ? 2 : 0;
    int code;
    memset(compiler_log, 0, sizeof compiler_log);
    if (has_libraries) {
        CUlibrary library = NULL;
        code = api.cuLibraryLoadData(&library, data, options, values, count, NULL, NULL, 0);
        if (code == 0 && may_compile) {
            /* A PTX is compiled when it is put into a context. Now, so that the log is that of this image. */
            CUkernel kernel = NULL;
            CUfunction function = NULL;
            code = api.cuLibraryGetKernel(&kernel, library, kiln_image_entry(image));
            code = code != 0 ? code : api.cuKernelGetFunction(&function, kernel);
            if (code != 0) {
                api.cuLibraryUnload(library);
            }
        }
        *module = library;
    } else {
        CUmodule loaded = NULL;
        code = api.cuModuleLoadDataEx(&loaded, data, count, options, values);
        *module = loaded;
    }
    if (code != 0 && log_bytes > 0) {
        snprintf(log, log_bytes, "%s", compiler_log);
    }
    return code;
}

static int unload(void *user, void *module, uint64_t scope)
{
    (void)user;
    if (has_libraries) {
        return api.cuLibraryUnload((CUlibrary)module);
    }
    CUcontext context = (CUcontext)(uintptr_t)scope;
    int code = api.cuCtxPushCurrent(context);
    if (code == 0) {
        code = api.cuModuleUnload((CUmodule)module);
        api.cuCtxPopCurrent(&context);
    }
    return code;
}

/* The attributes that launches of an image rely on. */
static int set_attribute(void *function, int attribute, int value, CUdevice device)
{
    return has_libraries ? api.cuKernelSetAttribute(attribute, value, (CUkernel)function, device)
                         : api.cuFuncSetAttribute((CUfunction)function, attribute, value);
}

/* The PTX version of a function is the capability that its code was written for, also where the driver compiled it (NVIDIA,
 * "CUDA Driver API", CU_FUNC_ATTRIBUTE_PTX_VERSION). */
static int chosen(void *user, void *module, const struct kiln_image *image, int32_t device, int32_t *capability)
{
    (void)user;
    int found = 0;
    int code;
    if (has_libraries) {
        CUkernel kernel = NULL;
        code = api.cuLibraryGetKernel(&kernel, (CUlibrary)module, kiln_image_entry(image));
        code = code != 0 ? code : api.cuKernelGetAttribute(&found, CU_FUNC_ATTRIBUTE_PTX_VERSION, kernel, device);
    } else {
        CUfunction function = NULL;
        code = api.cuModuleGetFunction(&function, (CUmodule)module, kiln_image_entry(image));
        code = code != 0 ? code : api.cuFuncGetAttribute(&found, CU_FUNC_ATTRIBUTE_PTX_VERSION, function);
    }
    *capability = found;
    return code;
}

static int get_function(void *user, void *module, const struct kiln_image *image, int32_t device, void **function)
{
    (void)user;
    int code;
    if (has_libraries) {
        CUkernel kernel = NULL;
        code = api.cuLibraryGetKernel(&kernel, (CUlibrary)module, kiln_image_entry(image));
        *function = kernel;
    } else {
        CUfunction found = NULL;
        code = api.cuModuleGetFunction(&found, (CUmodule)module, kiln_image_entry(image));
        *function = found;
    }
    if (code == 0 && image->shared_static + image->shared_dynamic > PLAIN_SHARED) {
        code = set_attribute(
            *function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)image->shared_dynamic, device);
    }
    if (code == 0 && image->cluster[0] * image->cluster[1] * image->cluster[2] > PORTABLE_CLUSTER) {
        code = set_attribute(*function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, device);
    }
    return code;
}

static int settle(void *user, void *function)
{
    (void)user;
    CUfunction found = (CUfunction)function;
    int code = has_libraries ? api.cuKernelGetFunction(&found, (CUkernel)function) : 0;
    if (code == 0 && api.cuFuncLoad != NULL) {
        code = api.cuFuncLoad(found);
    }
    return code;
}

static int launch(void *user, const struct kiln_launch_request *request)
{
    (void)user;
    const struct kiln_image *image = request->image;
    size_t bytes = image->parameter_bytes;
    void *extra[] = { (void *)1, request->buffer, (void *)2, &bytes, NULL }; /* CU_LAUNCH_PARAM_BUFFER_POINTER, ..._SIZE */
    CUfunction function = (CUfunction)request->function;
    const uint32_t *cluster = image->cluster;
    const bool is_clustered = cluster[0] * cluster[1] * cluster[2] > 1;
    if (!is_clustered && !image->cooperative && !image->pdl) {
        return api.cuLaunchKernel(function, request->grid[0], request->grid[1], request->grid[2], image->threads, 1, 1,
            image->shared_dynamic, request->stream, NULL, extra);
    }
    if (api.cuLaunchKernelEx == NULL) {
        return kiln_fail(KILN_ERROR_DRIVER_TOO_OLD, "cuLaunchKernelEx",
            "%s is launched with attributes, which drivers know since CUDA 11.8; this one is of CUDA %d.%d",
            kiln_image_id(image), driver_version / 1000, driver_version % 1000 / 10);
    }
    for (size_t i = 0; i < 3; i++) {
        const uint64_t blocks = (uint64_t)request->grid[i] * cluster[i];
        const uint64_t most = i == 0 ? INT32_MAX : 65535;
        if (blocks > most) {
            return kiln_fail(KILN_ERROR_GRID_OUT_OF_RANGE, "",
                "the grid of %s has %llu blocks in %c with those of its clusters, and a driver takes %llu",
                kiln_image_id(image), (unsigned long long)blocks, "xyz"[i], (unsigned long long)most);
        }
    }
    CUlaunchAttribute attributes[3];
    memset(attributes, 0, sizeof attributes);
    CUlaunchConfig config = { request->grid[0] * cluster[0], request->grid[1] * cluster[1], request->grid[2] * cluster[2],
        image->threads, 1, 1, image->shared_dynamic, request->stream, attributes, 0 };
    if (is_clustered) {
        CUlaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute->value.clusterDim.x = cluster[0];
        attribute->value.clusterDim.y = cluster[1];
        attribute->value.clusterDim.z = cluster[2];
    }
    if (image->cooperative) {
        CUlaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attribute->value.cooperative = 1;
    }
    if (image->pdl) {
        CUlaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute->value.programmaticStreamSerializationAllowed = 1;
    }
    if (!image->cooperative) {
        return api.cuLaunchKernelEx(&config, function, NULL, extra);
    }
    /* Of a cooperative launch with a buffer no graph can be captured: driver 580 says CUDA_ERROR_INVALID_VALUE. */
    void *values[KILN_MAX_PARAMETERS];
    const int status = kiln_find_values(request, values);
    return status != 0 ? status : api.cuLaunchKernelEx(&config, function, values, NULL);
}

static int capturing(void *user, struct CUstream_st *stream, bool *is_capturing)
{
    (void)user;
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    const int code = api.cuStreamIsCapturing(stream, &status);
    *is_capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
    return code;
}

static int pointer(void *user, const void *address, struct kiln_pointer *found)
{
    (void)user;
    const CUdeviceptr asked = (CUdeviceptr)(uintptr_t)address;
    unsigned int type = 0;
    unsigned int is_managed = 0;
    found->memory = KILN_MEMORY_UNKNOWN;
    found->device = 0;
    int code = api.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, asked);
    if (code != 0) {
        return code == CUDA_ERROR_INVALID_VALUE ? 0 : code;
    }
    code = api.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, asked);
    code = code != 0 ? code : api.cuPointerGetAttribute(&found->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, asked);
    if (code == 0) {
        found->memory = is_managed != 0 ? KILN_MEMORY_MANAGED
            : type == CU_MEMORYTYPE_HOST ? KILN_MEMORY_HOST
                                         : KILN_MEMORY_DEVICE;
    }
    return code;
}

static const char *error_name(void *user, int code)
{
    (void)user;
    const char *name = NULL;
    return api.cuGetErrorName != NULL && api.cuGetErrorName(code, &name) == 0 ? name : NULL;
}

static const char *error_text(void *user, int code)
{
    (void)user;
    const char *text = NULL;
    return api.cuGetErrorString != NULL && api.cuGetErrorString(code, &text) == 0 ? text : NULL;
}

static int allocate(void *user, size_t bytes, void **address)
{
    (void)user;
    CUdeviceptr found = 0;
    const int code = api.cuMemAlloc(&found, bytes);
    *address = (void *)(uintptr_t)found;
    return code;
}

static int release(void *user, void *address)
{
    (void)user;
    return api.cuMemFree((CUdeviceptr)(uintptr_t)address);
}

static int fill(void *user, void *address, size_t bytes, struct CUstream_st *stream)
{
    (void)user;
    return api.cuMemsetD8Async((CUdeviceptr)(uintptr_t)address, 0, bytes, stream);
}

static int create_event(void *user, void **event)
{
    (void)user;
    CUevent created = NULL;
    const int code = api.cuEventCreate(&created, CU_EVENT_DEFAULT);
    *event = created;
    return code;
}

static int destroy_event(void *user, void *event)
{
    (void)user;
    return api.cuEventDestroy((CUevent)event);
}

static int record_event(void *user, void *event, struct CUstream_st *stream)
{
    (void)user;
    return api.cuEventRecord((CUevent)event, stream);
}

static int elapsed(void *user, void *start, void *end, float *milliseconds)
{
    (void)user;
    const int code = api.cuEventSynchronize((CUevent)end);
    return code != 0 ? code : api.cuEventElapsedTime(milliseconds, (CUevent)start, (CUevent)end);
}

const struct kiln_driver *kiln_cuda_driver(void)
{
    static const struct kiln_driver driver = {
        .struct_bytes = sizeof driver,
        .name = "CUDA",
        .open = open_cuda,
        .current = current,
        .describe = describe,
        .load = load,
        .unload = unload,
        .chosen = chosen,
        .get_function = get_function,
        .settle = settle,
        .launch = launch,
        .capturing = capturing,
        .pointer = pointer,
        .error_name = error_name,
        .error_text = error_text,
        .allocate = allocate,
        .release = release,
        .fill = fill,
        .create_event = create_event,
        .destroy_event = destroy_event,
        .record_event = record_event,
        .elapsed = elapsed,
    };
    return &driver;
}

#endif
