// What the kernels need beyond the language: element types, vectors of 16 bytes, and reductions over a block.
//
// The sources include no CUDA header, so that the compiler of CUDA (scripts/cuda_kernels.sh) and, with
// AF_CPU_BLOCKS, a C++ compiler take the same text: cgo/testdata/cuda/blocks.h then runs each CUDA thread on the CPU.
#pragma once

#ifdef AF_CPU_BLOCKS
#include "blocks.h"
#else
#define AF_DEVICE static __device__ __forceinline__
#define AF_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define AF_DYNAMIC_SHARED(name) extern __shared__ float name[]
#define AF_ALIGNED(pointer, bytes)
#endif

constexpr float kLeastFloat = -3.402823466e38f;

struct bf16 {
  unsigned short bits;
};

AF_DEVICE float widen(float x) { return x; }
AF_DEVICE float widen(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
AF_DEVICE void narrow(float& to, float x) { to = x; }
AF_DEVICE void narrow(bf16& to, float x) {  // to the nearest, ties to even
#ifdef AF_CPU_BLOCKS
  const unsigned u = __float_as_uint(x);
  to.bits = x != x ? 0x7fff : static_cast<unsigned short>((u + 0x7fff + (u >> 16 & 1)) >> 16);
#else
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#endif
}

// Elements that one access of memory moves, at most 16 bytes.
template <class X, int Count = 16 / sizeof(X)>
struct alignas(Count * sizeof(X)) Vec {
  static constexpr int N = Count;
  X x[N];
};

template <class X>
AF_DEVICE Vec<X> load(const X* p) {
  AF_ALIGNED(p, sizeof(Vec<X>));
  return *reinterpret_cast<const Vec<X>*>(p);
}
template <class X, int N>
AF_DEVICE void store(X* p, const Vec<X, N>& v) {
  AF_ALIGNED(p, sizeof(Vec<X, N>));
  *reinterpret_cast<Vec<X, N>*>(p) = v;
}

// The elements of a row from column c of n on: a vector where whole says that rows are made of aligned vectors, else
// one by one as far as the row goes.
template <class X>
AF_DEVICE Vec<X> load_row(const X* row, int c, int n, bool whole) {
  if (whole) return load(row + c);
  Vec<X> v;
#pragma unroll
  for (int k = 0; k < Vec<X>::N; k++) narrow(v.x[k], c + k < n ? widen(row[c + k]) : 0.0f);
  return v;
}
template <class X, int N>
AF_DEVICE void store_row(X* row, int c, int n, bool whole, const Vec<X, N>& v) {
  if (whole) return store(row + c, v);
#pragma unroll
  for (int k = 0; k < N; k++) {
    if (c + k < n) row[c + k] = v.x[k];
  }
}

// The sum of every thread's v, the same bits in each. blockDim.x is a multiple of 32.
AF_DEVICE float block_sum(float v) {
  __shared__ float of_warp[33];
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    float w = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f;
    for (int d = 16; d > 0; d >>= 1) w += __shfl_xor_sync(0xffffffffu, w, d);
    if (threadIdx.x == 0) of_warp[32] = w;
  }
  __syncthreads();
  const float sum = of_warp[32];
  __syncthreads();  // before the next sum writes
  return sum;
}
