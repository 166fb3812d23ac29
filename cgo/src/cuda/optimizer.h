// AdamW's step over n numbers of each buffer, by the formula of kernel::adamw (kernels.cc). The gradient is cleared
// and, where rounded is there, the new parameter is rounded to bfloat16 into it, so that each number moves once.
#pragma once
#include "device.h"

constexpr int kStepThreads = 256, kStepVectors = 2;  // of a block; of a thread, whose neighbours' lie beside them

AF_DEVICE void adamw(float* p, float* g, float* m, float* v, bf16* rounded, long long n, float beta1, float rest1,
                     float beta2, float rest2, float eps, float decay, float step_size, float inverse_correction,
                     float gradient_scale, int whole) {
  constexpr int N = Vec<float>::N;
  constexpr int kMost = kStepThreads * kStepVectors * N;  // numbers of a block
  const long long first = static_cast<long long>(blockIdx.x) * kMost;
  const int length = n - first < kMost ? static_cast<int>(n - first) : kMost;
  p += first, g += first, m += first, v += first;
  Vec<float> pi[kStepVectors], gi[kStepVectors], mi[kStepVectors], vi[kStepVectors];
#pragma unroll
  for (int i = 0; i < kStepVectors; i++) {  // all of them before the first store, which may be to the same memory
    const int c = (i * kStepThreads + static_cast<int>(threadIdx.x)) * N;
    const bool full = whole && c + N <= length;
    pi[i] = load_row(p, c, length, full), gi[i] = load_row(g, c, length, full);
    mi[i] = load_row(m, c, length, full), vi[i] = load_row(v, c, length, full);
  }
  const Vec<float> zeros = {};
#pragma unroll
  for (int i = 0; i < kStepVectors; i++) {
    const int c = (i * kStepThreads + static_cast<int>(threadIdx.x)) * N;
    const bool full = whole && c + N <= length;
    Vec<bf16, N> r;
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float d = gi[i].x[k] * gradient_scale;
      mi[i].x[k] = mi[i].x[k] * beta1 + d * rest1;
      vi[i].x[k] = vi[i].x[k] * beta2 + d * d * rest2;
      pi[i].x[k] =
          pi[i].x[k] * decay - __fdividef(step_size * mi[i].x[k], sqrtf(vi[i].x[k]) * inverse_correction + eps);
      narrow(r.x[k], pi[i].x[k]);
    }
    store_row(p, c, length, full, pi[i]);
    store_row(g, c, length, full, zeros);
    store_row(m, c, length, full, mi[i]);
    store_row(v, c, length, full, vi[i]);
    if (rounded != nullptr) store_row(rounded + first, c, length, full, r);
  }
}
