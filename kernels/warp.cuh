// What warps of 32 threads do together.
#pragma once

constexpr unsigned ALL_LANES = 0xffffffffu;

// The sum of `value` over the warp, in lane 0.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = warpSize / 2; distance > 0; distance /= 2) {
        value += __shfl_down_sync(ALL_LANES, value, distance);
    }
    return value;
}
