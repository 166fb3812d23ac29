// Attention over a cache of keys and values in blocks: see paged.h of the folder above, and paged.cc for the formula.
//
// A block of threads takes one row, one head of keys with up to kPagedHeads of the query heads that share it, and one
// span of the row's keys. A span is a constant number of keys, so that the order of a row's sums depends on its count
// alone. The threads are groups of as many as hold a head, kLane elements each; a group takes one key after another and
// keeps of what it saw the largest score, the sum of e^(score - largest) and the so weighted sum of values.
#pragma once
#include "device.h"

constexpr int kPagedThreads = 128, kPagedHeads = 4, kSpan = 128;
constexpr int kLane = 8;  // elements of a head that a thread holds
constexpr int kTurn = 2;  // keys of a group whose numbers are on their way at once

template <class X>
struct Lane {
  static constexpr int N = Vec<X>::N;
  Vec<X> part[kLane / N];
};
template <class X>
AF_DEVICE float element(const Lane<X>& lane, int c) {
  return widen(lane.part[c / Vec<X>::N].x[c % Vec<X>::N]);
}
// The elements of a head from c of n on, and zeros beyond.
template <class X>
AF_DEVICE Lane<X> load_lane(const X* head, int c, int n, bool whole) {
  Lane<X> lane = {};
#pragma unroll
  for (int i = 0; i < kLane; i += Vec<X>::N) {
    if (c + i < n) lane.part[i / Vec<X>::N] = load_row(head, c + i, n, whole);
  }
  return lane;
}

// What one query head got of some keys: e^(score - max) summed, and the sum of values weighted so, a thread's elements
// of it. Of no key: {kLeastFloat, 0, 0}, whose finite max makes no NaN. A score that is NaN does not show in max, but
// in sum and in of.
struct Attended {
  float max, sum, of[kLane];
};

// Adds keys with their scores s, those that are seen.
template <class X>
AF_DEVICE void add(Attended& a, const float (&s)[kTurn], const bool (&seen)[kTurn], const Lane<X> (&value)[kTurn]) {
  float max = a.max;
#pragma unroll
  for (int u = 0; u < kTurn; u++) max = seen[u] ? fmaxf(max, s[u]) : max;
  const float before = __expf(a.max - max);
  a.max = max;
  a.sum *= before;
#pragma unroll
  for (int c = 0; c < kLane; c++) a.of[c] *= before;
#pragma unroll
  for (int u = 0; u < kTurn; u++) {
    const float weight = seen[u] ? __expf(s[u] - max) : 0.0f;
    a.sum += weight;
#pragma unroll
    for (int c = 0; c < kLane; c++) a.of[c] += weight * element(value[u], c);
  }
}

// In a warp's first group of L threads, what all of its groups got.
AF_DEVICE void merge_over_warp(Attended& a, int L) {
  for (int d = L; d < 32; d <<= 1) {
    const float other = __shfl_xor_sync(0xffffffffu, a.max, d), max = fmaxf(a.max, other);
    const float mine = __expf(a.max - max), theirs = __expf(other - max);
    a.max = max;
    a.sum = a.sum * mine + __shfl_xor_sync(0xffffffffu, a.sum, d) * theirs;
#pragma unroll
    for (int c = 0; c < kLane; c++) a.of[c] = a.of[c] * mine + __shfl_xor_sync(0xffffffffu, a.of[c], d) * theirs;
  }
}

// Element e of parts, joined from the first to the last. A part is E elements, their max and their sum, and begins
// stride behind the one before. Of one part: its own numbers.
struct Joined {
  float max, sum, of;
};
AF_DEVICE Joined joined(const float* part, int parts, int stride, int E, int e) {
  Joined j = {kLeastFloat, 0.0f, 0.0f};
  for (int i = 0; i < parts; i++) j.max = fmaxf(j.max, part[i * stride + E]);
  for (int i = 0; i < parts; i++) {
    const float weight = __expf(part[i * stride + E] - j.max);
    j.sum += weight * part[i * stride + E + 1];
    j.of += weight * part[i * stride + e];
  }
  return j;
}

// out [R, H E] of row row[i] where part is null: there is one span. Else part [n, H, spans, E + 2], which join_spans
// makes out of. The grid is n * K * chunks of query heads by spans; a block whose span the row does not reach has
// nothing to do.
template <class X>
AF_DEVICE void attend_paged(X* out, long long out_stride, float* part, const X* q, long long q_stride, const X* kv,
                            const int* row, const int* sequence, const int* count, const int* table, int blocks,
                            int block_size, int K, int G, int E, float scale, int whole) {
  const int chunks = (G + kPagedHeads - 1) / kPagedHeads, i = blockIdx.x / (K * chunks);
  const int kv_head = blockIdx.x / chunks % K, chunk = blockIdx.x % chunks * kPagedHeads, head = kv_head * G + chunk;
  const int heads = G - chunk < kPagedHeads ? G - chunk : kPagedHeads;
  const int begin = blockIdx.y * kSpan, end = count[i] - begin < kSpan ? count[i] : begin + kSpan;
  if (begin >= end) return;

  int L = 1;  // threads of a group
  while (L * kLane < E) L *= 2;
  const int groups = kPagedThreads / L, group = threadIdx.x / L, c0 = threadIdx.x % L * kLane;
  float query[kPagedHeads][kLane];
  Attended a[kPagedHeads];
#pragma unroll
  for (int g = 0; g < kPagedHeads; g++) {
    const Lane<X> lane = load_lane(q + row[i] * q_stride + (head + g) * E, c0, g < heads ? E : 0, whole);
    a[g].max = kLeastFloat, a[g].sum = 0.0f;
#pragma unroll
    for (int c = 0; c < kLane; c++) query[g][c] = element(lane, c) * scale, a[g].of[c] = 0.0f;
  }

  const int* block = table + static_cast<long long>(sequence[i]) * blocks;
  for (int first = begin; first < end; first += groups * kTurn) {  // the same number of turns for each thread
    Lane<X> key[kTurn], value[kTurn];
    bool seen[kTurn];
#pragma unroll
    for (int u = 0; u < kTurn; u++) {
      const int p = first + u * groups + group;
      seen[u] = p < end;
      const long long slot = seen[u] ? static_cast<long long>(block[p / block_size]) * block_size + p % block_size : 0;
      const X* k = kv + (slot * 2 * K + kv_head) * E;
      key[u] = load_lane(k, c0, seen[u] ? E : 0, whole);
      value[u] = load_lane(k + K * E, c0, seen[u] ? E : 0, whole);
    }
#pragma unroll
    for (int g = 0; g < kPagedHeads; g++) {
      if (g >= heads) break;
      float s[kTurn] = {};
#pragma unroll
      for (int u = 0; u < kTurn; u++) {
#pragma unroll
        for (int c = 0; c < kLane; c++) s[u] += query[g][c] * element(key[u], c);
        for (int d = L / 2; d > 0; d >>= 1) s[u] += __shfl_xor_sync(0xffffffffu, s[u], d);
      }
      add(a[g], s, seen, value);
    }
  }

  AF_DYNAMIC_SHARED(of_warp);  // [warps][kPagedHeads][E + 2]
  const int size = E + 2, stride = kPagedHeads * size, lane = threadIdx.x % 32;
#pragma unroll
  for (int g = 0; g < kPagedHeads; g++) {
    if (g >= heads) break;
    merge_over_warp(a[g], L);
    if (lane >= L) continue;
    float* to = of_warp + threadIdx.x / 32 * stride + g * size;
#pragma unroll
    for (int c = 0; c < kLane; c++) {
      if (c0 + c < E) to[c0 + c] = a[g].of[c];
    }
    if (c0 == 0) to[E] = a[g].max, to[E + 1] = a[g].sum;
  }
  __syncthreads();
  for (int j = threadIdx.x; j < heads * E; j += kPagedThreads) {
    const int g = j / E, e = j - g * E;
    const Joined x = joined(of_warp + g * size, kPagedThreads / 32, stride, E, e);
    if (part == nullptr) {
      narrow(out[row[i] * out_stride + (head + g) * E + e], __fdividef(x.of, x.sum));
      continue;
    }
    float* to = part + ((static_cast<long long>(i) * K * G + head + g) * gridDim.y + blockIdx.y) * size;
    to[e] = x.of;
    if (e == 0) to[E] = x.max, to[E + 1] = x.sum;
  }
}

// out [R, H E] of row row[i] from its spans in part [n, H, spans, E + 2]. The grid is n by the numbers of a row.
template <class X>
AF_DEVICE void join_spans(X* out, long long out_stride, const float* part, const int* row, const int* count, int spans,
                          int H, int E) {
  const int i = blockIdx.x, j = blockIdx.y * blockDim.x + threadIdx.x, h = j / E;
  if (h >= H) return;
  const float* of_head = part + (static_cast<long long>(i) * H + h) * spans * (E + 2);
  const Joined x = joined(of_head, (count[i] + kSpan - 1) / kSpan, E + 2, E, j - h * E);
  narrow(out[row[i] * out_stride + j], __fdividef(x.of, x.sum));
}
