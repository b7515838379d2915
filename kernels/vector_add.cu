// sum[i] = x[i] + y[i]: the plain kernel, with a symbol that reads as it is written here.

extern "C" __global__ void vector_add(float *__restrict__ sum, const float *__restrict__ x,
                                      const float *__restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        sum[i] = x[i] + y[i];
    }
}
