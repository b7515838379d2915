/* The driver of AMD: ROCm 6.0 and later, as "HIP Runtime API Reference" documents it, without its headers.
 *
 * A module belongs to the device that is current when it is loaded. Streams come as CUDA's type and are HIP's.
 */
#include "symbols.h"

#include <stdio.h>
#include <string.h>

#ifndef KILN_DISABLED

typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct CUstream_st *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;

typedef struct {
    int type;
    int device;
    void *devicePointer;
    void *hostPointer;
    int isManaged;
    unsigned int allocationFlags;
} hipPointerAttribute_t;

/* hipDeviceProp_t of ROCm 6: what is read of it, and room for it to grow. */
typedef struct {
    char name[256];
    char before[904];
    char gcnArchName[256];
    char behind[2680];
} hipDeviceProp_tR0600;

enum {
    hipErrorInvalidValue = 1,
    hipDeviceAttributeCooperativeLaunch = 10,
    hipDeviceAttributeL2CacheSize = 19,
    hipDeviceAttributeMaxThreadsPerBlock = 56,
    hipDeviceAttributeMultiprocessorCount = 63,
    hipDeviceAttributePageableMemoryAccess = 65,
    hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
    hipDeviceAttributeWarpSize = 87,
    hipMemoryTypeHost = 1,
    hipMemoryTypeDevice = 2,
    hipMemoryTypeManaged = 3,
    hipStreamCaptureStatusNone = 0,
    hipEventDefault = 0
};

static struct {
    int (*hipInit)(unsigned int);
    int (*hipDriverGetVersion)(int *);
    const char *(*hipGetErrorName)(int);
    const char *(*hipGetErrorString)(int);
    int (*hipGetDeviceCount)(int *);
    int (*hipGetDevice)(int *);
    int (*hipSetDevice)(int);
    int (*hipDeviceGetAttribute)(int *, int, int);
    int (*hipGetDeviceProperties)(hipDeviceProp_tR0600 *, int);
    int (*hipModuleLoadData)(hipModule_t *, const void *);
    int (*hipModuleUnload)(hipModule_t);
    int (*hipModuleGetFunction)(hipFunction_t *, hipModule_t, const char *);
    int (*hipModuleLaunchKernel)(hipFunction_t, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
        unsigned int, unsigned int, hipStream_t, void **, void **);
    int (*hipModuleLaunchCooperativeKernel)(hipFunction_t, unsigned int, unsigned int, unsigned int, unsigned int,
        unsigned int, unsigned int, unsigned int, hipStream_t, void **);
    int (*hipStreamIsCapturing)(hipStream_t, int *);
    int (*hipPointerGetAttributes)(hipPointerAttribute_t *, const void *);
    int (*hipMalloc)(void **, size_t);
    int (*hipFree)(void *);
    int (*hipMemsetAsync)(void *, int, size_t, hipStream_t);
    int (*hipEventCreateWithFlags)(hipEvent_t *, unsigned int);
    int (*hipEventDestroy)(hipEvent_t);
    int (*hipEventRecord)(hipEvent_t, hipStream_t);
    int (*hipEventSynchronize)(hipEvent_t);
    int (*hipEventElapsedTime)(float *, hipEvent_t, hipEvent_t);
} api;

static int driver_version;

static int open_hip(void *user)
{
    static const char *const names[] = { "libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", NULL };
    static const struct kiln_symbol symbols[] = {
        { "hipInit", &api.hipInit, true },
        { "hipDriverGetVersion", &api.hipDriverGetVersion, true },
        { "hipGetErrorName", &api.hipGetErrorName, true },
        { "hipGetErrorString", &api.hipGetErrorString, true },
        { "hipGetDeviceCount", &api.hipGetDeviceCount, true },
        { "hipGetDevice", &api.hipGetDevice, true },
        { "hipSetDevice", &api.hipSetDevice, true },
        { "hipDeviceGetAttribute", &api.hipDeviceGetAttribute, true },
        { "hipGetDevicePropertiesR0600", &api.hipGetDeviceProperties, true },
        { "hipModuleLoadData", &api.hipModuleLoadData, true },
        { "hipModuleUnload", &api.hipModuleUnload, true },
        { "hipModuleGetFunction", &api.hipModuleGetFunction, true },
        { "hipModuleLaunchKernel", &api.hipModuleLaunchKernel, true },
        { "hipModuleLaunchCooperativeKernel", &api.hipModuleLaunchCooperativeKernel, true },
        { "hipStreamIsCapturing", &api.hipStreamIsCapturing, true },
        { "hipPointerGetAttributes", &api.hipPointerGetAttributes, true },
        { "hipMalloc", &api.hipMalloc, true },
        { "hipFree", &api.hipFree, true },
        { "hipMemsetAsync", &api.hipMemsetAsync, true },
        { "hipEventCreateWithFlags", &api.hipEventCreateWithFlags, true },
        { "hipEventDestroy", &api.hipEventDestroy, true },
        { "hipEventRecord", &api.hipEventRecord, true },
        { "hipEventSynchronize", &api.hipEventSynchronize, true },
        { "hipEventElapsedTime", &api.hipEventElapsedTime, true },
    };
    (void)user;
    char why[200] = "";
    void *library = kiln_open_library(names, why, sizeof why);
    if (library == NULL) {
        return kiln_fail(KILN_ERROR_DRIVER_NOT_FOUND, "dlopen", "%s", why);
    }
    int code = kiln_resolve(library, "libamdhip64.so", symbols, sizeof symbols / sizeof *symbols, "ROCm 6.0");
    int devices = 0;
    code = code != 0 ? code : api.hipInit(0);
    code = code != 0 ? code : api.hipDriverGetVersion(&driver_version);
    return code != 0 ? code : api.hipGetDeviceCount(&devices);
}

static int current(void *user, struct kiln_current *found)
{
    (void)user;
    const int code = api.hipGetDevice(&found->device);
    found->scope = (uint64_t)found->device + 1;
    return code;
}

static int describe(void *user, int32_t device, struct kiln_device *described)
{
    (void)user;
    int warp = 0, threads = 0, shared = 0, processors = 0, l2 = 0, cooperative = 0, pageable = 0;
    const struct {
        int attribute;
        int *value;
    } asked[] = {
        { hipDeviceAttributeWarpSize, &warp },
        { hipDeviceAttributeMaxThreadsPerBlock, &threads },
        { hipDeviceAttributeMaxSharedMemoryPerBlock, &shared },
        { hipDeviceAttributeMultiprocessorCount, &processors },
        { hipDeviceAttributeL2CacheSize, &l2 },
        { hipDeviceAttributeCooperativeLaunch, &cooperative },
        { hipDeviceAttributePageableMemoryAccess, &pageable },
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const int code = api.hipDeviceGetAttribute(asked[i].value, asked[i].attribute, device);
        if (code != 0) {
            return code;
        }
    }
    hipDeviceProp_tR0600 properties;
    memset(&properties, 0, sizeof properties);
    const int code = api.hipGetDeviceProperties(&properties, device);
    if (code != 0) {
        return code;
    }
    described->vendor = KILN_VENDOR_AMD;
    described->ordinal = device;
    snprintf(described->architecture, sizeof described->architecture, "%.63s", properties.gcnArchName);
    snprintf(described->name, sizeof described->name, "%.127s", properties.name);
    described->driver_version = driver_version;
    described->warp_size = (uint32_t)warp;
    described->max_threads = (uint32_t)threads;
    described->max_shared = (uint32_t)shared;
    described->multiprocessors = (uint32_t)processors;
    described->l2_bytes = (uint32_t)l2;
    described->cooperative = cooperative != 0;
    described->pageable_access = pageable != 0;
    return 0;
}

static int load(
    void *user, const struct kiln_image *image, const void *data, void **module, char *log, size_t log_bytes)
{
    (void)user;
    (void)image;
    (void)log; /* code objects are not compiled again */
    (void)log_bytes;
    hipModule_t loaded = NULL;
    const int code = api.hipModuleLoadData(&loaded, data);
    *module = loaded;
    return code;
}

static int unload(void *user, void *module, uint64_t scope)
{
    (void)user;
    int before = 0;
    int code = api.hipGetDevice(&before);
    code = code != 0 ? code : api.hipSetDevice((int)(scope - 1));
    if (code == 0) {
        code = api.hipModuleUnload((hipModule_t)module);
        api.hipSetDevice(before);
    }
    return code;
}

static int get_function(void *user, void *module, const struct kiln_image *image, int32_t device, void **function)
{
    (void)user;
    (void)device;
    hipFunction_t found = NULL;
    const int code = api.hipModuleGetFunction(&found, (hipModule_t)module, kiln_image_entry(image));
    *function = found;
    return code;
}

static int settle(void *user, void *function)
{
    (void)user;
    (void)function; /* loading a module has put it where it runs */
    return 0;
}

static int launch(void *user, const struct kiln_launch_request *request)
{
    (void)user;
    const struct kiln_image *image = request->image;
    hipFunction_t function = (hipFunction_t)request->function;
    if (!image->cooperative) {
        size_t bytes = image->parameter_bytes;
        /* HIP_LAUNCH_PARAM_BUFFER_POINTER, ..._SIZE, ..._END */
        void *extra[] = { (void *)1, request->buffer, (void *)2, &bytes, (void *)3 };
        return api.hipModuleLaunchKernel(function, request->grid[0], request->grid[1], request->grid[2], image->threads, 1,
            1, image->shared_dynamic, request->stream, NULL, extra);
    }
    /* A cooperative launch takes no buffer. */
    void *values[KILN_MAX_PARAMETERS];
    const int status = kiln_find_values(request, values);
    if (status != 0) {
        return status;
    }
    return api.hipModuleLaunchCooperativeKernel(function, request->grid[0], request->grid[1], request->grid[2],
        image->threads, 1, 1, image->shared_dynamic, request->stream, values);
}

static int capturing(void *user, struct CUstream_st *stream, bool *is_capturing)
{
    (void)user;
    int status = hipStreamCaptureStatusNone;
    const int code = api.hipStreamIsCapturing(stream, &status);
    *is_capturing = status != hipStreamCaptureStatusNone;
    return code;
}

static int pointer(void *user, const void *address, struct kiln_pointer *found)
{
    (void)user;
    hipPointerAttribute_t attributes;
    memset(&attributes, 0, sizeof attributes);
    const int code = api.hipPointerGetAttributes(&attributes, address);
    found->memory = KILN_MEMORY_UNKNOWN;
    found->device = attributes.device;
    if (code == 0) {
        found->memory = attributes.isManaged != 0 || attributes.type == hipMemoryTypeManaged ? KILN_MEMORY_MANAGED
            : attributes.type == hipMemoryTypeDevice ? KILN_MEMORY_DEVICE
            : attributes.type == hipMemoryTypeHost ? KILN_MEMORY_HOST
                                                   : KILN_MEMORY_UNKNOWN;
    }
    return code == hipErrorInvalidValue ? 0 : code;
}

static const char *error_name(void *user, int code)
{
    (void)user;
    return api.hipGetErrorName != NULL ? api.hipGetErrorName(code) : NULL;
}

static const char *error_text(void *user, int code)
{
    (void)user;
    return api.hipGetErrorString != NULL ? api.hipGetErrorString(code) : NULL;
}

static int allocate(void *user, size_t bytes, void **address)
{
    (void)user;
    return api.hipMalloc(address, bytes);
}

static int release(void *user, void *address)
{
    (void)user;
    return api.hipFree(address);
}

static int fill(void *user, void *address, size_t bytes, struct CUstream_st *stream)
{
    (void)user;
    return api.hipMemsetAsync(address, 0, bytes, stream);
}

static int create_event(void *user, void **event)
{
    (void)user;
    hipEvent_t created = NULL;
    const int code = api.hipEventCreateWithFlags(&created, hipEventDefault);
    *event = created;
    return code;
}

static int destroy_event(void *user, void *event)
{
    (void)user;
    return api.hipEventDestroy((hipEvent_t)event);
}

static int record_event(void *user, void *event, struct CUstream_st *stream)
{
    (void)user;
    return api.hipEventRecord((hipEvent_t)event, stream);
}

static int elapsed(void *user, void *start, void *end, float *milliseconds)
{
    (void)user;
    const int code = api.hipEventSynchronize((hipEvent_t)end);
    return code != 0 ? code : api.hipEventElapsedTime(milliseconds, (hipEvent_t)start, (hipEvent_t)end);
}

const struct kiln_driver *kiln_hip_driver(void)
{
    static const struct kiln_driver driver = {
        .struct_bytes = sizeof driver,
        .name = "HIP",
        .open = open_hip,
        .current = current,
        .describe = describe,
        .load = load,
        .unload = unload,
        .chosen = NULL,
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
