#include "attend.h"

#include <algorithm>
#include <cstring>

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

}  // namespace

void attend(float* out, const float* q, int64_t G, const PagedHead& head, const int32_t* blocks, int64_t n,
            float* scratch) {
  auto scores = block_scores_plain;
  auto values = block_values_plain;
#ifdef AF_X86
  if (has_avx2()) scores = avx2::block_scores, values = avx2::block_values;
#endif
  const int64_t size = head.block_size, used = (n + size - 1) / size, stride = used * size;
  for (int64_t b = 0; b < used; b++)
    scores(scratch + b * size, stride, q, G, head.E, head.keys + blocks[b] * head.stride, size);
  float total[16];
  for (int64_t first = 0; first < G; first += 16) {  // scores behind n belong to no token: they are not read
    const int64_t rows = std::min<int64_t>(16, G - first);
    float *p = scratch + first * stride, *o = out + first * head.E, max;
    for (int64_t g = 0; g < rows; g++) total[g] = kernel::exp_minus_max(p + g * stride, n, &max);
    std::memset(o, 0, static_cast<size_t>(rows * head.E) * sizeof(float));
    for (int64_t b = 0; b < used; b++) {
      values(o, p + b * size, stride, rows, head.E, head.values + blocks[b] * head.stride,
             std::min(size, n - b * size));
    }
    for (int64_t g = 0; g < rows; g++) kernel::scale_to(o + g * head.E, o + g * head.E, 1 / total[g], head.E);
  }
}

}  // namespace af
