/* The part of the CUDA driver API that programs here use, as "CUDA Driver API" documents it, without its header. */
#ifndef DRIVER_H
#define DRIVER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef unsigned long long CUdeviceptr;

enum { CU_STREAM_NON_BLOCKING = 1, CU_STREAM_CAPTURE_MODE_GLOBAL = 0 };

/* X(name, exported name, parameters) */
#define DRIVER_FUNCTIONS(X) \
    X(cuInit, "cuInit", (unsigned)) \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice)) \
    X(cuCtxCreate, "cuCtxCreate_v2", (CUcontext *, unsigned, CUdevice)) \
    X(cuCtxDestroy, "cuCtxDestroy_v2", (CUcontext)) \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext)) \
    X(cuCtxSynchronize, "cuCtxSynchronize", (void)) \
    X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t)) \
    X(cuMemFree, "cuMemFree_v2", (CUdeviceptr)) \
    X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t)) \
    X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t)) \
    X(cuLibraryLoadData, "cuLibraryLoadData", (CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned)) \
    X(cuLibraryUnload, "cuLibraryUnload", (CUlibrary)) \
    X(cuLibraryGetKernel, "cuLibraryGetKernel", (CUkernel *, CUlibrary, const char *)) \
    X(cuKernelGetFunction, "cuKernelGetFunction", (CUfunction *, CUkernel)) \
    X(cuLaunchKernel, "cuLaunchKernel", (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
        CUstream, void **, void **)) \
    X(cuStreamCreate, "cuStreamCreate", (CUstream *, unsigned)) \
    X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream)) \
    X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream)) \
    X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, int)) \
    X(cuStreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph *)) \
    X(cuGraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec *, CUgraph, unsigned long long)) \
    X(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream)) \
    X(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec)) \
    X(cuGraphDestroy, "cuGraphDestroy", (CUgraph)) \
    X(cuEventCreate, "cuEventCreate", (CUevent *, unsigned)) \
    X(cuEventRecord, "cuEventRecord", (CUevent, CUstream)) \
    X(cuEventSynchronize, "cuEventSynchronize", (CUevent)) \
    X(cuEventElapsedTime, "cuEventElapsedTime", (float *, CUevent, CUevent))

#define DRIVER_POINTER(name, exported, parameters) static int(*name) parameters;
DRIVER_FUNCTIONS(DRIVER_POINTER)

/* Finds all of them, and makes the first GPU's own context current in this thread. */
static inline bool open_driver(CUcontext *context)
{
#define DRIVER_SYMBOL(name, exported, parameters) { exported, &name },
    static const struct {
        const char *name;
        void *place;
    } symbols[] = { DRIVER_FUNCTIONS(DRIVER_SYMBOL) };
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
        memcpy(symbols[i].place, &found, sizeof found);
    }
    return cuInit(0) == 0 && cuDevicePrimaryCtxRetain(context, 0) == 0 && cuCtxSetCurrent(*context) == 0;
}

#endif
