#include "attend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels.h"
#include "simd.h"

namespace af {
namespace {

// s [G, stride] = scores of G queries against one block's keys [E, width].
void block_scores_plain(float* s, int64_t stride, const float* q, int64_t G, int64_t E, const float* keys,
                        int64_t width) {
  for (int64_t g = 0; g < G; g++) {
    float* row = s + g * stride;
    std::fill_n(row, width, 0.0f);
    for (int64_t e = 0; e < E; e++) {
      for (int64_t j = 0; j < width; j++) row[j] += q[g * E + e] * keys[e * width + j];
    }
  }
}

// out [G, E] += p [G, stride] values [n, E].
void block_values_plain(float* out, const float* p, int64_t stride, int64_t G, int64_t E, const float* values,
                        int64_t n) {
  for (int64_t g = 0; g < G; g++) {
    for (int64_t j = 0; j < n; j++) {
      for (int64_t e = 0; e < E; e++) out[g * E + e] += p[g * stride + j] * values[j * E + e];
    }
  }
}

#ifdef AF_X86
AF_TARGET_AVX2
namespace avx2 {

template <int rows, int vectors>
inline void scores_tile(float* s, int64_t stride, const float* q, int64_t E, const float* keys, int64_t width) {
  __m256 sum[rows][vectors];
#pragma GCC unroll 4
  for (int g = 0; g < rows; g++) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) sum[g][v] = _mm256_setzero_ps();
  }
  for (int64_t e = 0; e < E; e++) {
    __m256 k[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) k[v] = _mm256_loadu_ps(keys + e * width + 8 * v);
#pragma GCC unroll 4
    for (int g = 0; g < rows; g++) {
      const __m256 x = _mm256_broadcast_ss(q + g * E + e);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; v++) sum[g][v] = _mm256_fmadd_ps(x, k[v], sum[g][v]);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < rows; g++) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) _mm256_storeu_ps(s + g * stride + 8 * v, sum[g][v]);
  }
}

template <int rows>
inline void scores_rows(float* s, int64_t stride, const float* q, int64_t E, const float* keys, int64_t width) {
  int64_t j = 0;
  for (; j + 16 <= width; j += 16) scores_tile<rows, 2>(s + j, stride, q, E, keys + j, width);
  for (; j < width; j += 8) scores_tile<rows, 1>(s + j, stride, q, E, keys + j, width);
}

void block_scores(float* s, int64_t stride, const float* q, int64_t G, int64_t E, const float* keys, int64_t width) {
  int64_t g = 0;
  for (; g + 4 <= G; g += 4) scores_rows<4>(s + g * stride, stride, q + g * E, E, keys, width);
  switch (G - g) {
    case 1:
      return scores_rows<1>(s + g * stride, stride, q + g * E, E, keys, width);
    case 2:
      return scores_rows<2>(s + g * stride, stride, q + g * E, E, keys, width);
    case 3:
      return scores_rows<3>(s + g * stride, stride, q + g * E, E, keys, width);
  }
}

template <int rows, int vectors>
inline void values_tile(float* out, const float* p, int64_t stride, int64_t E, const float* values, int64_t n) {
  __m256 sum[rows][vectors];
#pragma GCC unroll 4
  for (int g = 0; g < rows; g++) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) sum[g][v] = _mm256_loadu_ps(out + g * E + 8 * v);
  }
  for (int64_t j = 0; j < n; j++) {
    __m256 x[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) x[v] = _mm256_loadu_ps(values + j * E + 8 * v);
#pragma GCC unroll 4
    for (int g = 0; g < rows; g++) {
      const __m256 w = _mm256_broadcast_ss(p + g * stride + j);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; v++) sum[g][v] = _mm256_fmadd_ps(w, x[v], sum[g][v]);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < rows; g++) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) _mm256_storeu_ps(out + g * E + 8 * v, sum[g][v]);
  }
}

template <int rows>
inline void values_rows(float* out, const float* p, int64_t stride, int64_t E, const float* values, int64_t n) {
  int64_t e = 0;
  for (; e + 16 <= E; e += 16) values_tile<rows, 2>(out + e, p, stride, E, values + e, n);
  for (; e + 8 <= E; e += 8) values_tile<rows, 1>(out + e, p, stride, E, values + e, n);
  for (; e < E; e++) {
    for (int g = 0; g < rows; g++) {
      for (int64_t j = 0; j < n; j++) out[g * E + e] += p[g * stride + j] * values[j * E + e];
    }
  }
}

void block_values(float* out, const float* p, int64_t stride, int64_t G, int64_t E, const float* values, int64_t n) {
  int64_t g = 0;
  for (; g + 4 <= G; g += 4) values_rows<4>(out + g * E, p + g * stride, stride, E, values, n);
  switch (G - g) {
    case 1:
      return values_rows<1>(out + g * E, p + g * stride, stride, E, values, n);
    case 2:
      return values_rows<2>(out + g * E, p + g * stride, stride, E, values, n);
    case 3:
      return values_rows<3>(out + g * E, p + g * stride, stride, E, values, n);
  }
}

}  // namespace avx2
AF_TARGET_END
#endif

// At least n elements, which hold anything. What all held is freed before there is more, so that the two never lie side
// by side; room behind n, which takes no memory before it is used, makes that rare.
template <class T>
T* grown(std::vector<T>& all, int64_t n) {
  const size_t least = static_cast<size_t>(n);
  if (all.capacity() < least) {
    std::vector<T>().swap(all);
    all.reserve(2 * least);
  }
  if (all.size() < least) all.resize(least);
  return all.data();
}

template <class X>
X* grown_rows(AttendScratch& scratch, int64_t n) {
  if constexpr (std::is_same_v<X, float>) {
    return grown(scratch.rows, n);
  } else {
    return grown(scratch.half_rows, n);
  }
}

// Panels [count, K/2, 16, 2] one behind the other.
Panels whole(const bfloat16* data, int64_t count, int64_t K, AttendScratch& scratch) {
  const bfloat16** at = grown(scratch.at, count);
  for (int64_t p = 0; p < count; p++) at[p] = data + p * K * kPanel;
  return {at, count, 1, K, K};
}
// The keys of a sequence's first blocks, each a panel or more of its own.
Panels keys_of(const PagedHead<bfloat16>& head, const int32_t* blocks, int64_t used, AttendScratch& scratch) {
  const int64_t each = in_panels(head.block_size) / kPanel;
  const bfloat16** at = grown(scratch.at, used * each);
  for (int64_t b = 0; b < used; b++) {
    const bfloat16* keys = head.keys + blocks[b] * head.key_stride;
    for (int64_t p = 0; p < each; p++) at[b * each + p] = keys + p * head.E * kPanel;
  }
  return {at, used * each, 1, head.E, head.E};
}
// The values of a sequence's first n tokens, an even number: a block is a piece of each panel.
Panels values_of(const PagedHead<bfloat16>& head, const int32_t* blocks, int64_t n, AttendScratch& scratch) {
  const int64_t size = head.block_size, used = parts_of(n, size), count = in_panels(head.E) / kPanel;
  const bfloat16** at = grown(scratch.at, count * used);
  for (int64_t p = 0; p < count; p++) {
    const bfloat16* values = head.values + p * size * kPanel;
    for (int64_t b = 0; b < used; b++) at[p * used + b] = values + blocks[b] * head.value_stride;
  }
  return {at, count, used, size, n};
}

// Whether no one of the rows [rows, width], which lie stride apart, holds NaN or infinity.
bool is_finite(const float* all, int64_t rows, int64_t width, int64_t stride) {
  int bad = 0;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t e = 0; e < width; e++) bad |= !(std::abs(all[r * stride + e]) <= std::numeric_limits<float>::max());
  }
  return bad == 0;
}

// X is the type that the rows of chain have.
template <class X>
void attend_by_pairs(const Queries& t, const PagedHead<bfloat16>& head, float scale, const int32_t* blocks, int64_t n,
                     AttendScratch& scratch) {
  const int64_t size = head.block_size, each = in_panels(size), used = parts_of(n, size);
  const int64_t E = head.E, wide = in_panels(E), stride = used * each, even = n / 2 * 2, all = padded<bfloat16>(n);
  const int64_t G = t.G, B = t.count * G;
  float *s = grown(scratch.scores, B * stride), *o = grown(scratch.out, B * wide), *total = grown(scratch.total, B);
  X *x = grown_rows<X>(scratch, B * (E + stride)), *p = x + B * E;
  for (int64_t i = 0; i < t.count; i++) kernel::to_half(x + i * G * E, t.q + i * t.q_stride, G * E);
  chain({s, stride, false}, x, E, B, keys_of(head, blocks, used, scratch));
  for (int64_t b = 1; b < used && size < each; b++) {  // closes the gaps behind blocks that fill no panel
    for (int64_t row = 0; row < B; row++) std::copy_n(s + row * stride + b * each, size, s + row * stride + b * size);
  }
  float max;
  for (int64_t row = 0; row < B; row++) {
    const int64_t seen = n - t.count + 1 + row / G;
    total[row] = kernel::half_exp_minus_max(p + row * stride, s + row * stride, seen, scale, &max);
    std::fill(p + row * stride + seen, p + row * stride + all, X());
  }
  if (even > 0) chain({o, wide, false}, p, stride, B, values_of(head, blocks, even, scratch));
  if (even < n) {  // the last pair's second token may be of another sequence, or be no number: zeros take its place
    const bfloat16* values = head.values + blocks[used - 1] * head.value_stride + even % size * kPanel;
    bfloat16* last = grown(scratch.panels, 2 * wide);
    for (int64_t e = 0; e < wide; e++) {
      last[2 * e] = values[e / kPanel * kPanel * size + e % kPanel * 2];
      last[2 * e + 1] = 0;
    }
    chain({o, wide, even > 0}, p + even, stride, B, whole(last, wide / kPanel, 2, scratch));
  }
  if (t.count > 1 && !is_finite(o, B, E, wide)) {  // maybe by a value that a token does not see, times zero
    for (int64_t i = 0; i < t.count; i++) {
      const Queries one{t.q + i * t.q_stride, 0, t.out + i * t.out_stride, 0, 1, G};
      attend_by_pairs<X>(one, head, scale, blocks, n - t.count + 1 + i, scratch);
    }
    return;
  }
  for (int64_t row = 0; row < B; row++)
    kernel::scale_to(t.out + row / G * t.out_stride + row % G * E, o + row * wide, 1 / total[row], E);
}

// Panels [ceil(A / 16), E/2, 16, 2] of rows [A, E]; zeros behind A.
void pack_keys(bfloat16* to, const std::vector<const bfloat16*>& rows, int64_t E) {
  const int64_t A = static_cast<int64_t>(rows.size());
  for (int64_t a = 0; a < in_panels(A); a++) {
    bfloat16* column = to + a / kPanel * kPanel * E + a % kPanel * 2;
    for (int64_t e = 0; e < E; e += 2) {
      bfloat16 pair[2] = {};
      if (a < A) std::memcpy(pair, rows[a] + e, sizeof pair);
      std::memcpy(column + e * kPanel, pair, sizeof pair);
    }
  }
}

// Panels [ceil(E / 16), ceil(A / 2), 16, 2] of rows [A, E]; zeros behind A and E.
void pack_values(bfloat16* to, const std::vector<const bfloat16*>& rows, int64_t E) {
  const int64_t A = static_cast<int64_t>(rows.size());
  for (int64_t e = 0; e < E; e += kPanel) {
    const int64_t width = std::min(kPanel, E - e);
    for (int64_t a = 0; a < A; a += 2, to += 2 * kPanel) {
      bfloat16 first[kPanel] = {}, second[kPanel] = {};
      std::copy_n(rows[a] + e, width, first);
      if (a + 1 < A) std::copy_n(rows[a + 1] + e, width, second);
      for (int64_t j = 0; j < kPanel; j++) to[2 * j] = first[j], to[2 * j + 1] = second[j];
    }
  }
}

// The rows [G, E] of all tokens of the block as one matrix [count * G, E]: copied for chain, and by address for
// pack_values.
template <class X>
void copy_rows(X* to, const bfloat16* from, int64_t stride, const HalfBlock& b) {
  for (int64_t i = 0; i < b.count; i++) {
    for (int64_t e = 0; e < b.G * b.E; e++) round_to(to[i * b.G * b.E + e], widened(from[i * stride + e]));
  }
}
std::vector<const bfloat16*> rows_of(const bfloat16* from, int64_t stride, const HalfBlock& b) {
  std::vector<const bfloat16*> rows;
  rows.reserve(static_cast<size_t>(b.count * b.G));
  for (int64_t row = 0; row < b.count * b.G; row++) rows.push_back(from + row / b.G * stride + row % b.G * b.E);
  return rows;
}

template <class X>
void block_by_pairs(bfloat16* out, int64_t out_stride, float* lse, int64_t lse_stride, const HalfBlock& b,
                    AttendScratch& scratch) {
  const int64_t G = b.G, E = b.E, B = b.count * G, A = static_cast<int64_t>(b.keys.size());
  const int64_t all_A = in_panels(A), all_E = in_panels(E), even_A = padded<bfloat16>(A);
  X *q = grown_rows<X>(scratch, B * (E + even_A)), *p = q + B * E;
  float *s = grown(scratch.scores, B * all_A), *o = grown(scratch.out, B * all_E), *total = grown(scratch.total, B);
  bfloat16* panels = grown(scratch.panels, std::max(all_A * E, even_A * all_E));
  copy_rows(q, b.q, b.q_stride, b);
  pack_keys(panels, b.keys, E);
  chain({s, all_A, false}, q, E, B, whole(panels, all_A / kPanel, E, scratch));
  for (int64_t row = 0; row < B; row++) {
    const int64_t i = row / G, seen = A - b.count + i + 1;
    X* weights = p + row * even_A;
    float max;
    total[row] = kernel::half_exp_minus_max(weights, s + row * all_A, seen, b.scale, &max);
    std::fill(weights + seen, weights + even_A, X());
    lse[i * lse_stride + row % G] = max + std::log(total[row]);
  }
  pack_values(panels, b.values, E);
  chain({o, all_E, false}, p, even_A, B, whole(panels, all_E / kPanel, even_A, scratch));
  for (int64_t row = 0; row < B; row++) {
    float* sums = o + row * all_E;
    kernel::scale_to(sums, sums, 1 / total[row], E);
    kernel::to_half(out + row / G * out_stride + row % G * E, sums, E);
  }
}

// to [columns, padded(rows)] = from [rows, columns], whose rows lie stride apart; zeros behind an odd row.
template <class X>
void transpose(X* to, const X* from, int64_t rows, int64_t columns, int64_t stride) {
  const int64_t width = padded<bfloat16>(rows);
  for (int64_t first = 0; first < rows; first += 8) {  // eight rows' lines fit the cache, also where they share a set
    const int64_t last = std::min(rows, first + 8);
    for (int64_t begin = 0; begin < columns; begin += 16) {
      const int64_t end = std::min(columns, begin + 16);
      for (int64_t c = begin; c < end; c++) {
        for (int64_t r = first; r < last; r++) to[c * width + r] = from[r * stride + c];
      }
    }
  }
  for (int64_t c = 0; rows < width && c < columns; c++) to[c * width + rows] = X();
}

template <class X>
void backward_by_pairs(const HalfBlock& b, const HalfGradients& d, AttendScratch& scratch) {
  const int64_t G = b.G, E = b.E, B = b.count * G, A = static_cast<int64_t>(b.keys.size());
  const int64_t all_A = in_panels(A), all_E = in_panels(E), even_A = padded<bfloat16>(A), even_B = padded<bfloat16>(B);
  X *x = grown_rows<X>(scratch, B * E + B * even_A + A * even_B), *square = x + B * E, *turned = square + B * even_A;
  float *s = grown(scratch.scores, B * all_A), *ds = grown(scratch.d_scores, B * all_A);
  float* sums = grown(scratch.out, std::max(A, B) * all_E);
  bfloat16* panels = grown(scratch.panels, std::max({all_A * E, even_A * all_E, even_B * all_E}));
  // to [B, all_A] = rows [B, E] times the keys, or the values.
  const auto against = [&](float* to, const bfloat16* rows, int64_t stride, const std::vector<const bfloat16*>& all) {
    copy_rows(x, rows, stride, b);
    pack_keys(panels, all, E);
    chain({to, all_A, false}, x, E, B, whole(panels, all_A / kPanel, E, scratch));
  };
  // sums [rows, all_E] = weights [rows, K] times the matrix [K, E] whose rows all names.
  const auto weighted = [&](const X* weights, int64_t rows, const std::vector<const bfloat16*>& all) {
    const int64_t K = padded<bfloat16>(static_cast<int64_t>(all.size()));
    pack_values(panels, all, E);
    chain({sums, all_E, false}, weights, K, rows, whole(panels, all_E / kPanel, K, scratch));
  };
  const auto add_to = [&](const std::vector<float*>& all, float scale) {
    for (int64_t a = 0; a < A; a++) {
      kernel::scale_to(sums + a * all_E, sums + a * all_E, scale, E);
      kernel::add(all[a], sums + a * all_E, E);
    }
  };
  const auto seen = [&](int64_t row) { return A - b.count + row / G + 1; };
  // square [B, even_A] = the rounded rows of from [B, all_A] as far as a row sees, zeros behind.
  const auto round = [&](const float* from) {
    for (int64_t row = 0; row < B; row++) {
      X* to = square + row * even_A;
      kernel::to_half(to, from + row * all_A, seen(row));
      std::fill(to + seen(row), to + even_A, X());
    }
  };
  against(s, b.q, b.q_stride, b.keys);
  against(ds, d.d_out, d.stride, b.values);
  for (int64_t row = 0; row < B; row++) {
    float* p = s + row * all_A;
    kernel::scale_to(p, p, b.scale, seen(row));
    kernel::exp_minus(p, seen(row), d.lse[row / G * d.lse_stride + row % G]);
    double delta = 0;
    const int64_t at = row / G * d.stride + row % G * E;
    for (int64_t e = 0; e < E; e++) delta += static_cast<double>(widened(d.out[at + e])) * widened(d.d_out[at + e]);
    kernel::softmax_backward(ds + row * all_A, p, seen(row), static_cast<float>(delta));
  }
  round(s);
  transpose(turned, square, B, A, even_A);
  weighted(turned, A, rows_of(d.d_out, d.stride, b));
  add_to(d.d_values, 1);
  round(ds);
  transpose(turned, square, B, A, even_A);
  weighted(turned, A, rows_of(b.q, b.q_stride, b));
  add_to(d.d_keys, b.scale);
  weighted(square, B, b.keys);
  for (int64_t row = 0; row < B; row++) {
    float* from = sums + row * all_E;
    kernel::scale_to(from, from, b.scale, E);
    kernel::to_half(d.d_q + row / G * d.d_q_stride + row % G * E, from, E);
  }
}

}  // namespace

void put(const PagedHead<float>& head, int64_t block, int64_t slot, const float* key, const float* value) {
  float* keys = head.keys + block * head.key_stride + slot;
  for (int64_t e = 0; e < head.E; e++) keys[e * head.block_size] = key[e];
  std::copy_n(value, head.E, head.values + block * head.value_stride + slot * head.E);
}
void put(const PagedHead<bfloat16>& head, int64_t block, int64_t slot, const float* key, const float* value) {
  bfloat16* keys = head.keys + block * head.key_stride + slot / kPanel * kPanel * head.E + slot % kPanel * 2;
  bfloat16* values = head.values + block * head.value_stride + slot / 2 * 2 * kPanel + slot % 2;
  for (int64_t e = 0; e < head.E; e++) {
    round_to(keys[e / 2 * 2 * kPanel + e % 2], key[e]);
    round_to(values[e / kPanel * kPanel * head.block_size + e % kPanel * 2], value[e]);
  }
}

void attend(float* out, const float* q, int64_t G, const PagedHead<float>& head, const int32_t* blocks, int64_t n,
            AttendScratch& scratch) {
  auto scores = block_scores_plain;
  auto values = block_values_plain;
#ifdef AF_X86
  if (has_avx2()) scores = avx2::block_scores, values = avx2::block_values;
#endif
  const int64_t size = head.block_size, used = (n + size - 1) / size, stride = used * size;
  float* all = grown(scratch.scores, G * stride);
  for (int64_t b = 0; b < used; b++)
    scores(all + b * size, stride, q, G, head.E, head.keys + blocks[b] * head.key_stride, size);
  float total[16];
  for (int64_t first = 0; first < G; first += 16) {  // scores behind n belong to no token: they are not read
    const int64_t rows = std::min<int64_t>(16, G - first);
    float *p = all + first * stride, *o = out + first * head.E, max;
    for (int64_t g = 0; g < rows; g++) total[g] = kernel::exp_minus_max(p + g * stride, n, &max);
    std::memset(o, 0, static_cast<size_t>(rows * head.E) * sizeof(float));
    for (int64_t b = 0; b < used; b++) {
      values(o, p + b * size, stride, rows, head.E, head.values + blocks[b] * head.value_stride,
             std::min(size, n - b * size));
    }
    for (int64_t g = 0; g < rows; g++) kernel::scale_to(o + g * head.E, o + g * head.E, 1 / total[g], head.E);
  }
}

void attend(const Queries& queries, const PagedHead<bfloat16>& head, float scale, const int32_t* blocks, int64_t n,
            AttendScratch& scratch) {
  by_pairs([&](auto x) { attend_by_pairs<decltype(x)>(queries, head, scale, blocks, n, scratch); });
}

void attend_block(bfloat16* out, int64_t out_stride, float* lse, int64_t lse_stride, const HalfBlock& block,
                  AttendScratch& scratch) {
  by_pairs([&](auto x) { block_by_pairs<decltype(x)>(out, out_stride, lse, lse_stride, block, scratch); });
}
void attend_block_backward(const HalfBlock& block, const HalfGradients& gradients, AttendScratch& scratch) {
  by_pairs([&](auto x) { backward_by_pairs<decltype(x)>(block, gradients, scratch); });
}

}  // namespace af
