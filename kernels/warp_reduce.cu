// sums[row] = the sum of x[row, :]: one block a row, first in registers, then by warp shuffles, then over the warps'
// sums in dynamic shared memory. Sums are float, whatever x is.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "warp.cuh"

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T, int THREADS>
__global__ void __launch_bounds__(THREADS)
    warp_reduce(float *__restrict__ sums, const T *__restrict__ x, long long row_stride, int n_cols) {
    static_assert(THREADS % 32 == 0, "whole warps only");
    constexpr int WARPS = THREADS / 32;
    extern __shared__ float warp_sums[];

    const T *row = x + blockIdx.x * row_stride;
    float sum = 0.0f;
    for (int column = threadIdx.x; column < n_cols; column += THREADS) {
        sum += to_float(row[column]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % warpSize == 0) {
        warp_sums[threadIdx.x / warpSize] = sum;
    }
    __syncthreads();
    if (threadIdx.x < warpSize) {
        sum = warp_sum(threadIdx.x < WARPS ? warp_sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) {
            sums[blockIdx.x] = sum;
        }
    }
}
