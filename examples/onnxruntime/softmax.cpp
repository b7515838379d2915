// Softmax through triton_kernel_infos.h: one kernel by its name, then each of its group that can take the rows, as a tuner
// would try them; every result is compared with one in double precision.
//
//     softmax [ROWS COLUMNS]
//
// The exit code is 0 when all is right, 1 when a result is wrong, and 2 when something cannot be run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "driver.h"
#include "loader.h"

namespace {

using triton_loader::CUdeviceptr;
using triton_loader::Driver;
using triton_loader::Kernels;
using triton_loader::Result;

// The kernel's parameters, packed as triton_kernel_infos.h lists them: the hidden pointers at the end are part of it.
struct SoftmaxArguments {
  CUdeviceptr output;
  CUdeviceptr input;
  std::int32_t input_row_stride;
  std::int32_t output_row_stride;
  std::int32_t n_cols;
  CUdeviceptr global_scratch = 0;
  CUdeviceptr profile_scratch = 0;
};
static_assert(sizeof(SoftmaxArguments) == 48);

constexpr double tolerance = 1e-5;

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(2);
}

void check(const Driver& cuda, int error, const char* what) {
  if (error != 0) stop(std::string(what) + ": " + triton_loader::error_name(cuda, error));
}

std::vector<double> reference(const std::vector<float>& input, std::size_t rows, std::size_t columns) {
  std::vector<double> output(input.size());
  for (std::size_t row = 0; row < rows; row++) {
    const float* from = &input[row * columns];
    const double largest = *std::max_element(from, from + columns);
    double sum = 0;
    for (std::size_t i = 0; i < columns; i++) sum += std::exp(from[i] - largest);
    for (std::size_t i = 0; i < columns; i++) output[row * columns + i] = std::exp(from[i] - largest) / sum;
  }
  return output;
}

// The largest difference, as a share of the largest value; a number that is none counts as infinite.
double largest_error(const std::vector<float>& found, const std::vector<double>& wanted) {
  double difference = 0, scale = 0;
  for (std::size_t i = 0; i < found.size(); i++) {
    if (!std::isfinite(found[i])) return HUGE_VAL;
    difference = std::max(difference, std::fabs(found[i] - wanted[i]));
    scale = std::max(scale, std::fabs(wanted[i]));
  }
  return difference / scale;
}

// Buffers on the device, and what is in them.
class Problem {
 public:
  Problem(const Driver& cuda, std::size_t rows, std::size_t columns)
      : cuda_(cuda), rows_(rows), columns_(columns), host_(rows * columns) {
    std::uint32_t state = 1;
    for (float& value : host_) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) / static_cast<float>(1 << 21) - 4.0f;
    }
    wanted_ = reference(host_, rows, columns);
    check(cuda, cuda.memory_allocate(&input_, bytes()), "no memory for the input");
    check(cuda, cuda.memory_allocate(&output_, bytes()), "no memory for the output");
    check(cuda, cuda.copy_to_device(input_, host_.data(), bytes()), "the input is not copied");
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
  ~Problem() {
    static_cast<void>(cuda_.memory_free(input_));
    static_cast<void>(cuda_.memory_free(output_));
  }

  // Whether a launch's result is right; what was there before the launch is not.
  template <typename Launch>
  bool run(const std::string& what, Launch launch) {
    const std::vector<float> nothing(host_.size(), -1.0f);
    check(cuda_, cuda_.copy_to_device(output_, nothing.data(), bytes()), "the output is not cleared");
    const auto stride = static_cast<std::int32_t>(columns_);
    SoftmaxArguments arguments = {output_, input_, stride, stride, stride};
    const Result result = launch(triton_loader::Grid{static_cast<unsigned>(rows_), 1, 1}, arguments);
    if (result.status == triton_loader::Status::unsupported) {
      std::printf("passed over: %s\n", result.message.c_str());
      return true;
    }
    if (!result) stop(result.message);
    check(cuda_, cuda_.context_synchronize(), what.c_str());
    std::vector<float> found(host_.size());
    check(cuda_, cuda_.copy_from_device(found.data(), output_, bytes()), "the output is not copied");
    const double error = largest_error(found, wanted_);
    const bool right = error <= tolerance;
    std::printf("%s %s: largest error %.1e of %.0e\n", right ? "ok" : "WRONG", what.c_str(), error, tolerance);
    return right;
  }

 private:
  std::size_t bytes() const { return host_.size() * sizeof(float); }

  const Driver& cuda_;
  std::size_t rows_, columns_;
  std::vector<float> host_;
  std::vector<double> wanted_;
  CUdeviceptr input_ = 0, output_ = 0;
};

// All in a function of its own: the kernels are unloaded before the context is given back.
bool run(const Driver& cuda, std::size_t rows, std::size_t columns) {
  Kernels kernels;
  const Result loaded = kernels.load();
  if (!loaded) stop(loaded.message);
  Problem problem(cuda, rows, columns);

  const std::string name = "softmax_fp32_16384";
  bool right = problem.run(name + " by its name", [&](triton_loader::Grid grid, SoftmaxArguments& arguments) {
    return kernels.launch(nullptr, name, grid, &arguments, sizeof arguments);
  });
  for (const std::size_t index : kernels.group("softmax_fp32")) {
    const triton_loader::Kernel& kernel = kernels.all()[index];
    if (static_cast<std::size_t>(kernel.constants.at("BLOCK_SIZE")) < columns) {
      std::printf("passed over: %s takes fewer columns\n", kernel.name.c_str());
      continue;
    }
    right &= problem.run(kernel.name + " of its group", [&](triton_loader::Grid grid, SoftmaxArguments& arguments) {
      return kernels.launch(nullptr, index, grid, &arguments, sizeof arguments);
    });
  }
  std::printf("%zu kernels loaded\n", kernels.all().size());
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t rows = argc == 3 ? std::strtoul(argv[1], nullptr, 10) : 37;
  const std::size_t columns = argc == 3 ? std::strtoul(argv[2], nullptr, 10) : 2000;
  if ((argc != 1 && argc != 3) || rows == 0 || columns == 0 || columns > 16384) stop("softmax [ROWS COLUMNS]");
  std::string why;
  const Driver* cuda = triton_loader::driver(why);
  if (cuda == nullptr) stop("there is no driver: " + why);
  int device = 0;
  CUctx_st* context = nullptr;
  check(*cuda, cuda->init(0), "the driver does not start");
  check(*cuda, cuda->device_get(&device, 0), "there is no GPU");
  check(*cuda, cuda->primary_context_retain(&context, device), "there is no context");
  check(*cuda, cuda->context_set_current(context), "the context is not taken");
  const bool right = run(*cuda, rows, columns);
  check(*cuda, cuda->primary_context_release(device), "the context is not given back");
  return right ? 0 : 1;
}
