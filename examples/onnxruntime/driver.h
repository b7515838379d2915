// The part of the CUDA driver API that the example uses, as "CUDA Driver API" documents it, found when the program runs:
// it is built without the CUDA toolkit, and says what is missing where there is no driver.
#pragma once

#include <cstddef>
#include <string>

struct CUctx_st;
struct CUfunc_st;
struct CUmod_st;
struct CUstream_st;

namespace triton_loader {

using CUdeviceptr = unsigned long long;

struct Driver {
  int (*init)(unsigned flags);
  int (*device_get)(int* device, int ordinal);
  int (*primary_context_retain)(CUctx_st** context, int device);
  int (*primary_context_release)(int device);
  int (*context_set_current)(CUctx_st* context);
  int (*context_synchronize)();
  int (*module_load_data)(CUmod_st** module, const void* image);
  int (*module_unload)(CUmod_st* module);
  int (*module_get_function)(CUfunc_st** function, CUmod_st* module, const char* name);
  int (*function_set_attribute)(CUfunc_st* function, int attribute, int value);
  int (*launch_kernel)(CUfunc_st* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared, CUstream_st* stream, void** parameters,
                       void** extra);
  int (*memory_allocate)(CUdeviceptr* address, std::size_t bytes);
  int (*memory_free)(CUdeviceptr address);
  int (*copy_to_device)(CUdeviceptr to, const void* from, std::size_t bytes);
  int (*copy_from_device)(void* to, CUdeviceptr from, std::size_t bytes);
  int (*get_error_name)(int error, const char** name);
};

// The driver, looked up once; nullptr where it is missing or too old, and then `why` says so.
const Driver* driver(std::string& why);

// What an error of the driver is called.
std::string error_name(const Driver& driver, int error);

}  // namespace triton_loader
