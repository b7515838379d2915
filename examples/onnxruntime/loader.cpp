#include "loader.h"

#include <dlfcn.h>
#include <triton_kernel_infos.h>

#include <utility>

#include "driver.h"

namespace triton_loader {
namespace {

constexpr int warp_size = 32;
// What ONNX Runtime's launcher lets pass.
constexpr int max_threads = 1024;
constexpr int max_shared = 64 * 1024;
// What a block has without asking for more; ONNX Runtime's launcher does not ask.
constexpr int default_shared = 48 * 1024;
constexpr int max_dynamic_shared_attribute = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

void* const buffer_pointer = reinterpret_cast<void*>(1);  // CU_LAUNCH_PARAM_BUFFER_POINTER
void* const buffer_size = reinterpret_cast<void*>(2);     // CU_LAUNCH_PARAM_BUFFER_SIZE

Result failed(std::string message) { return {Status::failed, std::move(message)}; }
Result unsupported(std::string message) { return {Status::unsupported, std::move(message)}; }

}  // namespace

Kernels::~Kernels() {
  std::string why;
  const Driver* cuda = driver(why);
  for (CUmod_st* module : modules_) {
    // There is nobody to tell, and a context that is gone took its modules with it.
    if (cuda != nullptr) static_cast<void>(cuda->module_unload(module));
  }
}

Result Kernels::load() {
  for (const auto& info : kernel_infos) {
    Kernel kernel = {info.name, info.group_name, info.num_warps, info.shared, info.constants, nullptr};
    Result result = add(info.name_start, info.func_name, std::move(kernel));
    if (!result) return result;
  }
  return {};
}

Result Kernels::add(const char* symbol, const char* entry, Kernel kernel) {
  std::string why;
  const Driver* cuda = driver(why);
  if (cuda == nullptr) return failed("there is no driver: " + why);
  // In the program itself and what it is linked with: the image is a symbol there, if the program exports it.
  const void* image = dlsym(RTLD_DEFAULT, symbol);
  if (image == nullptr) {
    return failed(std::string(symbol) + " is not in the program: link triton_kernel_infos.a whole, and export symbols");
  }
  CUmod_st* module = nullptr;
  int error = cuda->module_load_data(&module, image);
  if (error != 0) return failed(kernel.name + " does not load: " + error_name(*cuda, error));
  modules_.push_back(module);
  error = cuda->module_get_function(&kernel.function, module, entry);
  if (error != 0) return failed(kernel.name + " has no function " + entry + ": " + error_name(*cuda, error));
  if (kernel.shared > default_shared && kernel.shared <= max_shared) {
    error = cuda->function_set_attribute(kernel.function, max_dynamic_shared_attribute, kernel.shared);
    if (error != 0) return failed(kernel.name + " gets no shared memory: " + error_name(*cuda, error));
  }
  by_name_[kernel.name] = kernels_.size();
  by_group_[kernel.group].push_back(kernels_.size());
  kernels_.push_back(std::move(kernel));
  return {};
}

const Kernel* Kernels::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &kernels_[found->second];
}

const std::vector<std::size_t>& Kernels::group(const std::string& name) const {
  static const std::vector<std::size_t> none;
  const auto found = by_group_.find(name);
  return found == by_group_.end() ? none : found->second;
}

Result Kernels::launch(CUstream_st* stream, const std::string& name, Grid grid, void* arguments,
                       std::size_t bytes) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return unsupported("there is no kernel " + name);
  return launch(stream, found->second, grid, arguments, bytes);
}

Result Kernels::launch(CUstream_st* stream, std::size_t index, Grid grid, void* arguments, std::size_t bytes) const {
  if (index >= kernels_.size()) return unsupported("there is no kernel of number " + std::to_string(index));
  const Kernel& kernel = kernels_[index];
  const int threads = kernel.num_warps * warp_size;
  if (threads > max_threads) {
    return unsupported(kernel.name + " has " + std::to_string(threads) + " threads in a block, of " +
                       std::to_string(max_threads));
  }
  if (kernel.shared > max_shared) {
    return unsupported(kernel.name + " takes " + std::to_string(kernel.shared) + " bytes of shared memory, of " +
                       std::to_string(max_shared));
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  std::string why;
  const Driver* cuda = driver(why);
  if (cuda == nullptr) return failed("there is no driver: " + why);
  void* extra[] = {buffer_pointer, arguments, buffer_size, &bytes, nullptr};
  const int error =
      cuda->launch_kernel(kernel.function, grid.x, grid.y, grid.z, static_cast<unsigned>(threads), 1, 1,
                          static_cast<unsigned>(kernel.shared), stream, nullptr, extra);
  if (error != 0) return failed(kernel.name + " is not launched: " + error_name(*cuda, error));
  return {};
}

}  // namespace triton_loader
