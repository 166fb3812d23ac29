// The rows of the head: z [rows, V] float32 logits before the temperature's scale, one block a row. The formulas are
// those of head.cc. whole says that every row is made of aligned vectors.
#pragma once
#include "device.h"

constexpr int kHeadThreads = 512;

// A part of a row: its largest logit, and over the part the sums of e^(z - max) and of (z - max) e^(z - max).
struct HeadSum {
  float max, sum, dot;
};

AF_DEVICE HeadSum merged(HeadSum a, HeadSum b) {
  const float max = fmaxf(a.max, b.max), da = a.max - max, db = b.max - max, ea = __expf(da), eb = __expf(db);
  return {max, a.sum * ea + b.sum * eb, (a.dot + da * a.sum) * ea + (b.dot + db * b.sum) * eb};
}

AF_DEVICE HeadSum merged_over_warp(HeadSum s) {
  for (int d = 16; d > 0; d >>= 1) {
    s = merged(s, {__shfl_xor_sync(0xffffffffu, s.max, d), __shfl_xor_sync(0xffffffffu, s.sum, d),
                   __shfl_xor_sync(0xffffffffu, s.dot, d)});
  }
  return s;
}

// A part of nothing. Its dot stays 0 under merged: da is finite, and its sum is 0.
AF_DEVICE HeadSum nothing() { return {kLeastFloat, 0.0f, 0.0f}; }

template <int N>
AF_DEVICE void add(HeadSum& s, const float (&z)[N]) {
  float max = s.max;
#pragma unroll
  for (int i = 0; i < N; i++) max = fmaxf(max, z[i]);
  if (max > s.max) {
    const float d = s.max - max, e = __expf(d);
    s.dot = (s.dot + d * s.sum) * e;
    s.sum *= e;
    s.max = max;
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    const float t = z[i] - s.max, e = __expf(t);
    s.sum += e;
    s.dot += t * e;
  }
}

AF_DEVICE void head_forward(const float* logits, const long long* target, float scale, int V, int whole, float* logprob,
                            float* entropy, float* lse) {
  constexpr int N = Vec<float>::N;
  const int row = blockIdx.x;
  const float* z = logits + static_cast<long long>(row) * V;
  const int vectors = whole ? V : 0;  // the columns that are read as vectors
  HeadSum s = nothing();
  for (int j = threadIdx.x * N; j < vectors; j += blockDim.x * N) {
    const Vec<float> v = load(z + j);
    const float f[N] = {v.x[0] * scale, v.x[1] * scale, v.x[2] * scale, v.x[3] * scale};
    add(s, f);
  }
  for (int j = vectors + threadIdx.x; j < V; j += blockDim.x) {
    const float f[1] = {z[j] * scale};
    add(s, f);
  }
  __shared__ HeadSum of_warp[32];
  s = merged_over_warp(s);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  s = merged_over_warp(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : nothing());
  if (threadIdx.x != 0) return;
  const float log_sum = logf(s.sum);
  lse[row] = s.max + log_sum;
  logprob[row] = (z[target[row]] * scale - s.max) - log_sum;
  entropy[row] = log_sum - s.dot / s.sum;
}

// The gradient of a row's logits in the memory of the logits themselves: d [V] of Y from the row's first byte on, so
// that of bf16 the second half of the row is left over. A row without gradient becomes zeros and is not read, NaN or
// not.
template <class Y>
AF_DEVICE void head_backward(float* logits, const long long* target, const float* lse, const float* entropy,
                             const float* d_logprob, const float* d_entropy, float scale, int V, int whole) {
  constexpr int N = Vec<Y>::N, kSteps = N / Vec<float>::N;  // elements of a thread at a time, vectors that hold them
  const int row = blockIdx.x;
  float* z = logits + static_cast<long long>(row) * V;
  Y* out = reinterpret_cast<Y*>(z);
  const int t = static_cast<int>(target[row]);
  const float dl = d_logprob[row], de = d_entropy[row], l = lse[row], h = entropy[row];
  const bool silent = dl == 0.0f && de == 0.0f;
  for (int first = 0; first < V; first += blockDim.x * N) {  // the same number of turns for each thread
    const int j = first + threadIdx.x * N;
    Vec<float> in[kSteps];
#pragma unroll
    for (int k = 0; k < kSteps; k++) {
      if (j < V && !silent) in[k] = load_row(z, j + k * Vec<float>::N, V, whole);
    }
    // d lies before the logits that it is made of, where other threads' logits were. They are read now.
    if (sizeof(Y) < sizeof(float)) __syncthreads();
    if (j >= V) continue;
    Vec<Y> d;
#pragma unroll
    for (int k = 0; k < N; k++) {
      float g = 0.0f;
      if (!silent) {
        const float logp = in[k / Vec<float>::N].x[k % Vec<float>::N] * scale - l, p = __expf(logp);
        g = ((j + k == t ? dl : 0.0f) - p * (dl + de * (logp + h))) * scale;
      }
      narrow(d.x[k], g);
    }
    store_row(out, j, V, whole, d);
  }
}
