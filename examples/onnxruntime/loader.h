// A loader for triton_kernel_infos.h and .a that works as ONNX Runtime's does: all kernels of the header are loaded at
// once, found by name or by group, and launched with one packed buffer of arguments. No CUDA header is needed.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

struct CUfunc_st;
struct CUmod_st;
struct CUstream_st;

namespace triton_loader {

enum class Status {
  ok,
  unsupported,  // not this kernel: a tuner passes it over
  failed,
};

struct [[nodiscard]] Result {
  Status status = Status::ok;
  std::string message = {};

  explicit operator bool() const { return status == Status::ok; }
};

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

struct Kernel {
  std::string name;
  std::string group;
  int num_warps;
  int shared;                                        // bytes of dynamic shared memory
  std::unordered_map<std::string, int> constants;    // what was compiled in: BLOCK_SIZE, say
  CUfunc_st* function;
};

// The kernels of the header, loaded for the context that is current. They stay loaded until the object ends, which must be
// before the context does.
class Kernels {
 public:
  Kernels() = default;
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  ~Kernels();

  // Load all that the header lists. With an error, those before it are there.
  Result load();

  const std::vector<Kernel>& all() const { return kernels_; }

  // nullptr where there is none.
  const Kernel* find(const std::string& name) const;

  // Indices into all(), in the order of the header; empty where there is no such group.
  const std::vector<std::size_t>& group(const std::string& name) const;

  // Launch on a stream (nullptr is the default one). `arguments` are the kernel's parameters as they lie in memory, with
  // the pointers to scratch memory that the compiler put at the end. A grid with a zero in it is nothing to do.
  Result launch(CUstream_st* stream, std::size_t index, Grid grid, void* arguments, std::size_t bytes) const;
  Result launch(CUstream_st* stream, const std::string& name, Grid grid, void* arguments, std::size_t bytes) const;

 private:
  Result add(const char* symbol, const char* entry, Kernel kernel);

  std::vector<Kernel> kernels_;
  std::vector<CUmod_st*> modules_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::unordered_map<std::string, std::vector<std::size_t>> by_group_;
};

}  // namespace triton_loader
