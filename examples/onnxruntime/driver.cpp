#include "driver.h"

#include <dlfcn.h>

#include <cstring>

namespace triton_loader {
namespace {

struct Found {
  Driver driver = {};
  std::string why = {};  // empty when all is there
};

Found look_up() {
  Found found;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    found.why = dlerror();
    return found;
  }
  const struct {
    const char* name;
    void* slot;
  } symbols[] = {
      {"cuInit", &found.driver.init},
      {"cuDeviceGet", &found.driver.device_get},
      {"cuDevicePrimaryCtxRetain", &found.driver.primary_context_retain},
      {"cuDevicePrimaryCtxRelease_v2", &found.driver.primary_context_release},
      {"cuCtxSetCurrent", &found.driver.context_set_current},
      {"cuCtxSynchronize", &found.driver.context_synchronize},
      {"cuModuleLoadData", &found.driver.module_load_data},
      {"cuModuleUnload", &found.driver.module_unload},
      {"cuModuleGetFunction", &found.driver.module_get_function},
      {"cuFuncSetAttribute", &found.driver.function_set_attribute},
      {"cuLaunchKernel", &found.driver.launch_kernel},
      {"cuMemAlloc_v2", &found.driver.memory_allocate},
      {"cuMemFree_v2", &found.driver.memory_free},
      {"cuMemcpyHtoD_v2", &found.driver.copy_to_device},
      {"cuMemcpyDtoH_v2", &found.driver.copy_from_device},
      {"cuGetErrorName", &found.driver.get_error_name},
  };
  for (const auto& symbol : symbols) {
    void* address = dlsym(library, symbol.name);
    if (address == nullptr) {
      found.why = std::string("libcuda.so.1 has no ") + symbol.name;
      return found;
    }
    std::memcpy(symbol.slot, &address, sizeof address);
  }
  return found;
}

}  // namespace

const Driver* driver(std::string& why) {
  static const Found found = look_up();
  why = found.why;
  return found.why.empty() ? &found.driver : nullptr;
}

std::string error_name(const Driver& driver, int error) {
  const char* name = nullptr;
  if (driver.get_error_name(error, &name) != 0 || name == nullptr) name = "an unknown error";
  return std::string(name) + " (" + std::to_string(error) + ")";
}

}  // namespace triton_loader
