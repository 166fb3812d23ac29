// A kernel that needs more registers than it may have: what scripts/cuda_kernels.sh must refuse.
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* y, const float* x) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; i++) v[i] = x[threadIdx.x + i * 1024];
#pragma unroll
  for (int k = 0; k < 4; k++) {
#pragma unroll
    for (int i = 0; i < 96; i++) v[i] = v[i] * v[(i * 7 + 3) % 96] + v[(i + 41) % 96];
  }
#pragma unroll
  for (int i = 0; i < 96; i++) y[threadIdx.x + i * 1024] = v[i];
}
