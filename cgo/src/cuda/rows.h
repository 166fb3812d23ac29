// SwiGLU, RoPE and RMSNorm, forward and backward. The formulas are those of elementwise.cc, computed in float32 and
// rounded once. Rows are on the grid's first dimension, which may be long, and columns on its second, so that no index
// is divided in 64 bits. whole says that all rows and their parts are made of aligned vectors.
#pragma once
#include "device.h"

constexpr int kRowThreads = 256, kSumColumns = 32;

// The first column of this thread's vector, of rows that are one vector after another over the grid's second dimension.
template <class X>
AF_DEVICE int column() {
  return (blockIdx.y * blockDim.x + threadIdx.x) * Vec<X>::N;
}

// act [T, F] = silu(gate) * up of gate_up [T, 2F]
template <class X>
AF_DEVICE void swiglu(X* act, const X* gate_up, int F, int whole) {
  constexpr int N = Vec<X>::N;
  const long long t = blockIdx.x;
  const int c = column<X>();
  if (c >= F) return;
  const Vec<X> gate = load_row(gate_up + t * 2 * F, c, F, whole), up = load_row(gate_up + (t * 2 + 1) * F, c, F, whole);
  Vec<X> a;
#pragma unroll
  for (int k = 0; k < N; k++) {
    const float x = widen(gate.x[k]);
    narrow(a.x[k], __fdividef(x, 1.0f + __expf(-x)) * widen(up.x[k]));
  }
  store_row(act + t * F, c, F, whole, a);
}

// act again, and the gradient of gate_up
template <class X>
AF_DEVICE void swiglu_backward(X* d_gate_up, X* act, const X* gate_up, const X* d_act, int F, int whole) {
  constexpr int N = Vec<X>::N;
  const long long t = blockIdx.x;
  const int c = column<X>();
  if (c >= F) return;
  const Vec<X> gate = load_row(gate_up + t * 2 * F, c, F, whole), up = load_row(gate_up + (t * 2 + 1) * F, c, F, whole);
  const Vec<X> d = load_row(d_act + t * F, c, F, whole);
  Vec<X> a, d_gate, d_up;
#pragma unroll
  for (int k = 0; k < N; k++) {
    const float x = widen(gate.x[k]), u = widen(up.x[k]), da = widen(d.x[k]);
    const float s = __fdividef(1.0f, 1.0f + __expf(-x)), silu = x * s;
    narrow(a.x[k], silu * u);
    narrow(d_gate.x[k], da * u * (s + silu * (1.0f - s)));
    narrow(d_up.x[k], da * silu);
  }
  store_row(act + t * F, c, F, whole, a);
  store_row(d_gate_up + t * 2 * F, c, F, whole, d_gate);
  store_row(d_gate_up + (t * 2 + 1) * F, c, F, whole, d_up);
}

// Rotates the first heads of x [T, stride] in place, each of two halves; cos, sin [T, half]; sign -1 is backward. A
// thread takes a vector of a head's first half and the one that it is rotated with.
template <class X>
AF_DEVICE void rope(X* x, const float* cos, const float* sin, int stride, int heads, int half, float sign, int whole) {
  constexpr int N = Vec<X>::N;
  const long long t = blockIdx.x;
  const int per_head = (half + N - 1) / N, i = blockIdx.y * blockDim.x + threadIdx.x;
  const int h = i / per_head, c = (i - h * per_head) * N;
  if (h >= heads) return;
  X *first = x + t * stride + h * 2 * half, *second = first + half;
  const Vec<X> a = load_row(first, c, half, whole), b = load_row(second, c, half, whole);
  Vec<X> rotated_a, rotated_b;
#pragma unroll
  for (int k = 0; k < N; k++) {
    const bool in = whole || c + k < half;
    const float u = widen(a.x[k]), v = widen(b.x[k]);
    const float co = in ? cos[t * half + c + k] : 0.0f, si = in ? sign * sin[t * half + c + k] : 0.0f;
    narrow(rotated_a.x[k], u * co - v * si);
    narrow(rotated_b.x[k], v * co + u * si);
  }
  store_row(first, c, half, whole, rotated_a);
  store_row(second, c, half, whole, rotated_b);
}

// y = x rstd w over rows of n: row blockIdx.x, head blockIdx.y, whose numbers begin at row * stride + head * n; rstd
// [rows, heads] is made, or with again taken from before.
template <class X>
AF_DEVICE void rms_norm(X* y, long long y_stride, float* rstd, const X* x, long long x_stride, const X* w, int n,
                        float eps, int again, int whole) {
  constexpr int N = Vec<X>::N;
  const long long row = blockIdx.x, head = blockIdx.y, slot = row * gridDim.y + head;
  const X* in = x + row * x_stride + head * n;
  X* out = y + row * y_stride + head * n;
  float r;
  if (again) {
    r = rstd[slot];
  } else {
    float sum = 0.0f;
    for (int c = threadIdx.x * N; c < n; c += blockDim.x * N) {
      const Vec<X> v = load_row(in, c, n, whole);  // beyond the row: zeros
#pragma unroll
      for (int k = 0; k < N; k++) sum += widen(v.x[k]) * widen(v.x[k]);
    }
    r = rsqrtf(block_sum(sum) / static_cast<float>(n) + eps);
    if (threadIdx.x == 0) rstd[slot] = r;
  }
  for (int c = threadIdx.x * N; c < n; c += blockDim.x * N) {
    const Vec<X> v = load_row(in, c, n, whole), g = load_row(w, c, n, whole);
    Vec<X> o;
#pragma unroll
    for (int k = 0; k < N; k++) narrow(o.x[k], widen(v.x[k]) * r * widen(g.x[k]));
    store_row(out, c, n, whole, o);
  }
}

// dx +=, and part [gridDim.x, n]: the share of dw of this block, which takes rows * b / blocks up to rows * (b + 1) /
// blocks. How many blocks there are depends on the batch alone, and sum_parts adds their shares in order.
template <class X>
AF_DEVICE void rms_norm_backward(X* dx, long long dx_stride, float* part, const X* dy, long long dy_stride, const X* x,
                                 long long x_stride, const X* w, const float* rstd, int rows, int heads, int n,
                                 int whole) {
  constexpr int N = Vec<X>::N;
  AF_DYNAMIC_SHARED(dw);  // [N][vectors]: each thread its own columns, neighbours beside each other
  const int vectors = (n + N - 1) / N;
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
    for (int k = 0; k < N; k++) dw[k * vectors + i] = 0.0f;
  }
  const int begin = static_cast<int>(static_cast<long long>(rows) * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(static_cast<long long>(rows) * (blockIdx.x + 1) / gridDim.x);
  for (int row = begin; row < end; row++) {
    for (int head = 0; head < heads; head++) {
      const X *in = x + row * x_stride + head * n, *d = dy + row * dy_stride + head * n;
      X* out = dx + row * dx_stride + head * n;
      const float r = rstd[static_cast<long long>(row) * heads + head];
      float sum = 0.0f;
      for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        const Vec<X> v = load_row(in, i * N, n, whole), e = load_row(d, i * N, n, whole),
                     g = load_row(w, i * N, n, whole);
#pragma unroll
        for (int k = 0; k < N; k++) {
          const float normed = widen(v.x[k]) * r, de = widen(e.x[k]);
          sum += de * widen(g.x[k]) * normed;
          dw[k * vectors + i] += de * normed;
        }
      }
      const float mean = block_sum(sum) / static_cast<float>(n);
      for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        const Vec<X> v = load_row(in, i * N, n, whole), e = load_row(d, i * N, n, whole),
                     g = load_row(w, i * N, n, whole);
        Vec<X> o = load_row(out, i * N, n, whole);
#pragma unroll
        for (int k = 0; k < N; k++) {
          narrow(o.x[k], widen(o.x[k]) + (widen(e.x[k]) * widen(g.x[k]) - widen(v.x[k]) * r * mean) * r);
        }
        store_row(out, i * N, n, whole, o);
      }
    }
  }
  float* share = part + static_cast<long long>(blockIdx.x) * n;
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
    for (int k = 0; k < N && i * N + k < n; k++) share[i * N + k] = dw[k * vectors + i];
  }
}

// sum [n] += the rows of part [parts, n]. A block takes kSumColumns columns, and each of its warps an eighth of the
// rows, from the first to the last; their sums are added in order.
AF_DEVICE void sum_parts(float* sum, const float* part, int parts, int n) {
  constexpr int kGroups = kRowThreads / kSumColumns;
  __shared__ float of_group[kGroups][kSumColumns];
  const int column = threadIdx.x % kSumColumns, group = threadIdx.x / kSumColumns;
  const int c = blockIdx.x * kSumColumns + column;
  float total = 0.0f;
  if (c < n) {
    const int end = parts * (group + 1) / kGroups;
#pragma unroll 4
    for (int i = parts * group / kGroups; i < end; i++) total += part[static_cast<long long>(i) * n + c];
  }
  of_group[group][column] = total;
  __syncthreads();
  if (group > 0 || c >= n) return;
  for (int g = 1; g < kGroups; g++) total += of_group[g][column];
  sum[c] += total;
}
