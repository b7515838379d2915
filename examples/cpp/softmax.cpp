// Launches softmax<float> through the C++ layer: the type chooses the group, the library the variant for the GPU and for
// the number of columns.
//
//     softmax<float>: softmax_fp32_1024@sm_90a for 1000 columns, largest error 6.0e-08
//
// Exits with 1 when a result is wrong, and with 2 when there is no GPU or no image for it. The program allocates memory with
// the driver that it finds; one that uses CUDA or HIP anyway does so with that.
//
// Build and run, from the top of the repository and after `doit`, or as CMakeLists.txt and Makefile in the folders beside
// this file do it:
//
//     c++ -std=c++17 -I build/include examples/cpp/softmax.cpp build/lib/libkernels.a -ldl -lpthread -o build/softmax
//     build/softmax
#include <kernels/kernels.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace {

constexpr std::int32_t rows = 37;

// What of a driver the program needs itself. Addresses are numbers to CUDA and pointers to HIP.
struct Gpu {
    int (*cuda_allocate)(unsigned long long *, std::size_t) = nullptr;
    int (*cuda_copy_to)(unsigned long long, const void *, std::size_t) = nullptr;
    int (*cuda_copy_from)(void *, unsigned long long, std::size_t) = nullptr;
    int (*hip_allocate)(void **, std::size_t) = nullptr;
    int (*hip_copy)(void *, const void *, std::size_t, int) = nullptr;

    // Memory for so many elements; null where there is none. The end of the process frees it.
    template <typename T>
    kernels::device_ptr<T> allocate(std::size_t count) const
    {
        if (cuda_allocate != nullptr) {
            unsigned long long address = 0;
            return kernels::device_ptr<T>(cuda_allocate(&address, count * sizeof(T)) == 0 ? address : 0ULL);
        }
        void *address = nullptr;
        return kernels::device_ptr<T>(hip_allocate(&address, count * sizeof(T)) == 0 ? address : nullptr);
    }

    template <typename T>
    bool copy(kernels::device_ptr<T> to, const std::vector<T> &from) const
    {
        const std::size_t bytes = from.size() * sizeof(T);
        const auto address = reinterpret_cast<std::uintptr_t>(to.get());
        return (cuda_copy_to != nullptr ? cuda_copy_to(address, from.data(), bytes)
                                        : hip_copy(to.get(), from.data(), bytes, 1)) == 0;
    }

    // Waits for what was launched on the default stream.
    template <typename T>
    bool copy(std::vector<T> &to, kernels::device_ptr<T> from) const
    {
        const std::size_t bytes = to.size() * sizeof(T);
        const auto address = reinterpret_cast<std::uintptr_t>(from.get());
        return (cuda_copy_from != nullptr ? cuda_copy_from(to.data(), address, bytes)
                                          : hip_copy(to.data(), from.get(), bytes, 2)) == 0;
    }
};

// Finds a function of a library.
template <typename Function>
bool find(void *library, const char *name, Function *&function)
{
    void *found = dlsym(library, name);
    std::memcpy(&function, &found, sizeof found);
    return found != nullptr;
}

// CUDA with the first GPU's own context, or else HIP.
std::optional<Gpu> find_gpu()
{
    Gpu gpu;
    int (*init)(unsigned) = nullptr;
    int (*retain)(void **, int) = nullptr;
    int (*set_current)(void *) = nullptr;
    void *context = nullptr;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (library != nullptr && find(library, "cuInit", init) && find(library, "cuDevicePrimaryCtxRetain", retain)
        && find(library, "cuCtxSetCurrent", set_current) && find(library, "cuMemAlloc_v2", gpu.cuda_allocate)
        && find(library, "cuMemcpyHtoD_v2", gpu.cuda_copy_to) && find(library, "cuMemcpyDtoH_v2", gpu.cuda_copy_from)
        && init(0) == 0 && retain(&context, 0) == 0 && set_current(context) == 0) {
        return gpu;
    }
    gpu = {};
    library = dlopen("libamdhip64.so", RTLD_LAZY);
    if (library != nullptr && find(library, "hipMalloc", gpu.hip_allocate) && find(library, "hipMemcpy", gpu.hip_copy)) {
        return gpu;
    }
    return std::nullopt;
}

// The largest difference to what double precision gives.
double largest_error(const std::vector<float> &input, const std::vector<float> &output, std::size_t columns)
{
    double largest = 0;
    for (std::size_t start = 0; start < input.size(); start += columns) {
        const auto first = input.begin() + static_cast<std::ptrdiff_t>(start);
        const double top = *std::max_element(first, first + static_cast<std::ptrdiff_t>(columns));
        double sum = 0;
        for (std::size_t i = start; i < start + columns; i++) {
            sum += std::exp(input[i] - top);
        }
        for (std::size_t i = start; i < start + columns; i++) {
            const double error = std::abs(std::exp(input[i] - top) / sum - output[i]);
            // Not std::max, which would pass over a NaN.
            largest = error <= largest ? largest : error;
        }
    }
    return largest;
}

int fail(const char *what, kernels::error error)
{
    std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(error.detail().size()), error.detail().data());
    return 2;
}

int run(const Gpu &gpu, std::int32_t columns)
{
    const auto width = static_cast<std::size_t>(columns);
    std::vector<float> input(static_cast<std::size_t>(rows) * width), output(input.size());
    for (std::size_t i = 0; i < input.size(); i++) {
        input[i] = static_cast<float>(i * 2654435761U % 2000) / 100 - 10;
    }
    const auto on_gpu = gpu.allocate<float>(input.size()), outcome = gpu.allocate<float>(input.size());
    if (!on_gpu || !outcome || !gpu.copy(on_gpu, input)) {
        std::fputs("the driver has no memory, or copies none\n", stderr);
        return 2;
    }

    kernels::softmax<float> call;
    call.output_ptr = outcome;
    call.input_ptr = on_gpu;
    call.input_row_stride = columns;
    call.output_row_stride = columns;
    call.n_cols = columns;
    call.n_rows = rows;
    const auto choice = kernels::choose(call);
    if (!choice) {
        return fail("choose", choice.error());
    }
    if (const kernels::error error = kernels::launch(call)) {
        return fail("launch", error);
    }

    if (!gpu.copy(output, outcome)) {
        std::fputs("the driver copies nothing back\n", stderr);
        return 2;
    }
    const double error = largest_error(input, output, width);
    const std::string_view id = choice->image->id();
    std::printf("softmax<float>: %.*s for %d columns, largest error %.1e\n", static_cast<int>(id.size()), id.data(),
                columns, error);
    return error <= 1e-5 ? 0 : 1;
}

} // namespace

int main()
{
    const std::optional<Gpu> gpu = find_gpu();
    if (!gpu) {
        std::fputs("there is no driver of a GPU\n", stderr);
        return 2;
    }
    const kernels::unload_guard unloads_at_the_end;
    for (const std::int32_t columns : { 1000, 4096, 16384 }) {
        if (const int status = run(*gpu, columns)) {
            return status;
        }
    }
    return 0;
}
