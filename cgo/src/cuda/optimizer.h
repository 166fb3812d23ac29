// AdamW's step over n numbers of each buffer, by the formula of kernel::adamw (kernels.cc). The gradient is cleared
// and, where rounded is there, the new parameter is rounded to bfloat16 into it, so that each number moves once.
#pragma once
#include "device.h"

constexpr int kStepThreads = 256, kStepNumbers = 8;  // a thread's: a vector of bfloat16

AF_DEVICE void adamw(float* p, float* g, float* m, float* v, bf16* rounded, long long n, float beta1, float rest1,
                     float beta2, float rest2, float eps, float decay, float step_size, float inverse_correction,
                     float gradient_scale, int whole) {
  const long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * kStepNumbers;
  if (at >= n) return;
  const int length = n - at < kStepNumbers ? static_cast<int>(n - at) : kStepNumbers;
  const bool full = whole && length == kStepNumbers;
  constexpr int N = Vec<float>::N, kVectors = kStepNumbers / N;
  Vec<float> pi[kVectors], gi[kVectors], mi[kVectors], vi[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; i++) {  // all of them before the first store, which may be to the same memory
    pi[i] = load_row(p + at, i * N, length, full), gi[i] = load_row(g + at, i * N, length, full);
    mi[i] = load_row(m + at, i * N, length, full), vi[i] = load_row(v + at, i * N, length, full);
  }
  const Vec<float> zeros = {};
  Vec<bf16> r;
#pragma unroll
  for (int i = 0; i < kVectors; i++) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float d = gi[i].x[k] * gradient_scale;
      mi[i].x[k] = mi[i].x[k] * beta1 + d * rest1;
      vi[i].x[k] = vi[i].x[k] * beta2 + d * d * rest2;
      pi[i].x[k] =
          pi[i].x[k] * decay - __fdividef(step_size * mi[i].x[k], sqrtf(vi[i].x[k]) * inverse_correction + eps);
      narrow(r.x[i * N + k], pi[i].x[k]);
    }
    store_row(p + at, i * N, length, full, pi[i]);
    store_row(g + at, i * N, length, full, zeros);
    store_row(m + at, i * N, length, full, mi[i]);
    store_row(v + at, i * N, length, full, vi[i]);
  }
  if (rounded != nullptr) store_row(rounded + at, 0, length, full, r);
}
