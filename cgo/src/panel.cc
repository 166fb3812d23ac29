#include "panel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <type_traits>

#include "simd.h"

namespace af {
namespace {

constexpr int64_t kPiece = 384;  // most inner elements of a piece: 24 KiB of weights stay in the first-level cache
constexpr int64_t kRows = 192;   // rows whose inputs stay in the second-level cache

// One piece of K: from .. from + length.
struct Piece {
  int64_t from, length;
};
int64_t pieces_of(int64_t K) { return (K + kPiece - 1) / kPiece; }
// step: the pieces begin at multiples of it.
Piece piece_of(int64_t K, int64_t i, int64_t pieces, int64_t step) {
  const int64_t steps = (K + step - 1) / step;
  const int64_t from = steps * i / pieces * step;
  return {from, std::min(K, steps * (i + 1) / pieces * step) - from};
}

// Rows in tiles of about equal height, at most most.
struct Rows {
  int64_t from, count;
};
int64_t tiles_of(int64_t M, int64_t most) { return (M + most - 1) / most; }
Rows rows_of_tile(int64_t M, int64_t i, int64_t tiles) {
  const int64_t from = M * i / tiles;
  return {from, M * (i + 1) / tiles - from};
}

float finished(float v, const Output& out, int64_t column, float before) {
  if (out.bias != nullptr) v += out.bias[column];
  if (out.add) v += before;
  if (!out.rounded) return v;
  bfloat16 half;
  round_to(half, v);
  return widened(half);
}

// All rows against one piece of one panel.
template <class W>
void panel_piece_plain(const Output& out, const float* x, int64_t ldx, int64_t M, const W* w, int64_t length) {
  constexpr int64_t group = kGroup<W>;
  for (int64_t r = 0; r < M; r++) {
    float sum[kPanel] = {};
    for (int64_t k = 0; k < length; k += group) {
      for (int64_t i = std::min(group, length - k) - 1; i >= 0; i--) {
        for (int64_t j = 0; j < kPanel; j++) sum[j] += x[r * ldx + k + i] * widened(w[k * kPanel + j * group + i]);
      }
    }
    float* y = out.y + r * out.stride;
    for (int64_t j = 0; j < out.width; j++) y[j] = finished(sum[j], out, j, y[j]);
  }
}

template <class X>
void chain_plain(const Sums& sums, const X* x, int64_t ldx, int64_t M, const Panels& w) {
  for (int64_t r = 0; r < M; r++) {
    for (int64_t p = 0; p < w.count; p++) {
      const bfloat16* panel = w.data + p * w.size;
      float* y = sums.y + r * sums.stride + p * kPanel;
      if (!sums.onward) std::fill_n(y, kPanel, 0.0f);
      for (int64_t k = 0; k < w.K; k += 2) {
        for (int64_t i : {1, 0}) {
          for (int64_t j = 0; j < kPanel; j++)
            y[j] += widened(x[r * ldx + k + i]) * widened(panel[k * kPanel + 2 * j + i]);
        }
      }
    }
  }
}

#ifdef AF_X86
AF_TARGET_AVX2
namespace avx2 {

constexpr int kTile = 6;  // rows of a tile: 12 sums, 2 weights and 1 input fill the 16 registers
struct Sixteen {
  __m256 a, b;
};
inline __m256i load_pairs(const bfloat16* w) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)); }
inline __m256 first_of(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
// The mask is read anew each time: kept in a register it would drive a sum of the six rows' twelve out of the sixteen.
alignas(32) constexpr uint32_t kUpper[8] = {0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
                                            0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};
inline __m256 second_of(__m256i pairs) {
  const __m256i upper = *reinterpret_cast<const volatile __m256i*>(kUpper);
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, upper));
}
// The nearest number of bfloat16, ties to even.
inline __m256 to_half(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v), one = _mm256_set1_epi32(1);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i kept = _mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
  const __m256i nan = _mm256_set1_epi32(0x7fc00000);
  return _mm256_blendv_ps(_mm256_castsi256_ps(kept), _mm256_castsi256_ps(nan), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}
inline Sixteen zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Sixteen load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Sixteen first_of_pairs(const bfloat16* w) { return {first_of(load_pairs(w)), first_of(load_pairs(w + 16))}; }
inline Sixteen second_of_pairs(const bfloat16* w) { return {second_of(load_pairs(w)), second_of(load_pairs(w + 16))}; }
inline Sixteen to_half(Sixteen v) { return {to_half(v.a), to_half(v.b)}; }
inline void store(float* p, Sixteen v) { _mm256_storeu_ps(p, v.a), _mm256_storeu_ps(p + 8, v.b); }
inline Sixteen add(Sixteen x, Sixteen y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline void multiply_add(Sixteen& sum, const float* x, Sixteen w) {
  const __m256 v = _mm256_broadcast_ss(x);
  sum.a = _mm256_fmadd_ps(v, w.a, sum.a), sum.b = _mm256_fmadd_ps(v, w.b, sum.b);
}
#include "panel_tile.h"

}  // namespace avx2
AF_TARGET_END

AF_TARGET_AVX512
namespace avx512 {

constexpr int kTile = 14;  // 14 sums and 1 weight of 32 registers: more rows wait for the inputs
using Sixteen = __m512;
constexpr __mmask16 kAll = 0xffff;  // GCC 12 takes what an unmasked form leaves out for uninitialized
inline Sixteen zero() { return _mm512_setzero_ps(); }
inline Sixteen load(const float* p) { return _mm512_loadu_ps(p); }
inline __m512i load_pairs(const bfloat16* w) { return _mm512_loadu_si512(w); }
inline Sixteen first_of_pairs(const bfloat16* w) {
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, load_pairs(w), 16));
}
inline Sixteen second_of_pairs(const bfloat16* w) {
  return _mm512_castsi512_ps(_mm512_and_si512(load_pairs(w), _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}
// The nearest number of bfloat16, ties to even.
inline Sixteen to_half(Sixteen v) {
  const __m512i bits = _mm512_castps_si512(v), one = _mm512_set1_epi32(1);
  const __m512i odd = _mm512_and_si512(_mm512_maskz_srli_epi32(kAll, bits, 16), one);
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i kept = _mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(kept, nan, _mm512_set1_epi32(0x7fc00000)));
}
inline void store(float* p, Sixteen v) { _mm512_storeu_ps(p, v); }
inline Sixteen add(Sixteen x, Sixteen y) { return _mm512_add_ps(x, y); }
inline void multiply_add(Sixteen& sum, const float* x, Sixteen w) { sum = _mm512_fmadd_ps(_mm512_set1_ps(*x), w, sum); }
#include "panel_tile.h"

}  // namespace avx512
AF_TARGET_END

#ifdef AF_EMULATED_PAIRS  // of a test: the instruction lane by lane, on any processor
#include AF_EMULATED_PAIRS
#else
AF_TARGET_AVX512BF16
namespace dot {

using namespace avx512;
inline bool available() { return has_avx512bf16(); }
inline void multiply_add_pairs(Sixteen& sum, const bfloat16* x, __m512i w) {
  int pair;
  std::memcpy(&pair, x, sizeof pair);
  sum = _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)_mm512_set1_epi32(pair));
}
#include "panel_tile.h"

}  // namespace dot
AF_TARGET_END
#endif

// rows of x [rows, K], K even, as a tile reads them: [K/2, rows, 2].
void pack_tile(bfloat16* to, const bfloat16* x, int64_t K, int64_t rows) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t k = 0; k < K; k += 2) std::memcpy(to + k * rows + 2 * r, x + r * K + k, 2 * sizeof *to);
  }
}

// Whether the instruction gives what the widened numbers do, but for rounding, on one planted product of 15 rows.
bool dot_agrees() {
  constexpr int64_t M = 15, K = 10;
  bfloat16 x[M * K], packed[M * K], w[K * kPanel];
  float wide[M * K], got[M * kPanel], want[M * kPanel];
  uint32_t state = 1;
  const auto next = [&state] {  // +-1 to +-2 with the 7 bits of a bfloat16
    state = state * 1664525 + 1013904223;
    return static_cast<bfloat16>(0x3f80 | (state >> 24 & 0x7f) | (state >> 16 & 0x8000));
  };
  for (int64_t i = 0; i < M * K; i++) x[i] = next(), wide[i] = widened(x[i]);
  for (bfloat16& v : w) v = next();
  const int64_t tiles = tiles_of(M, dot::kTile);
  for (int64_t t = 0; t < tiles; t++) {
    const Rows rows = rows_of_tile(M, t, tiles);
    pack_tile(packed + rows.from * K, x + rows.from * K, K, rows.count);
  }
  dot::panel_piece({got, kPanel, kPanel, nullptr, false, false}, packed, K, M, 0, w, K);
  panel_piece_plain({want, kPanel, kPanel, nullptr, false, false}, wide, K, M, w, K);
  for (int64_t i = 0; i < M * kPanel; i++) {
    if (!(std::abs(got[i] - want[i]) <= 1e-5f)) return false;  // of sums of ten products of at most 4
  }
  return true;
}
#endif

template <class W>
void any_panel_piece(const Output& out, const float* x, int64_t ldx, int64_t M, int64_t first, const W* w,
                     int64_t length) {
#ifdef AF_X86
  if (has_avx512()) return avx512::panel_piece(out, x, ldx, M, first, w, length);
  if (has_avx2()) return avx2::panel_piece(out, x, ldx, M, first, w, length);
#endif
  panel_piece_plain(out, x + first, ldx, M, w, length);
}

template <class W, class S>
void pack(const Loop& loop, W* to, const S* from, int64_t N, int64_t K, int64_t stride) {
  constexpr int64_t group = kGroup<W>;
  const int64_t panels = (N + kPanel - 1) / kPanel, size = padded<W>(K) * kPanel;
  loop(panels, std::max<int64_t>(1, (1 << 14) / K), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++) {
      W* out = to + p * size;
      const int64_t rows = std::min(kPanel, N - p * kPanel);
      if (rows < kPanel) std::memset(out, 0, static_cast<size_t>(size) * sizeof(W));
      if (K % group != 0) std::memset(out + K / group * group * kPanel, 0, group * kPanel * sizeof(W));
      for (int64_t first = 0; first < K; first += 16) {  // squares of 16 x 16 stay in the cache
        const int64_t last = std::min(K, first + 16);
        for (int64_t j = 0; j < rows; j++) {
          const S* row = from + (p * kPanel + j) * stride;
          for (int64_t k = first; k < last; k++)
            round_to(out[k / group * group * kPanel + j * group + k % group], widened(row[k]));
        }
      }
    }
  });
}

#ifdef AF_X86
void any_panel_piece(const Output& out, const bfloat16* x, int64_t ldx, int64_t M, int64_t first, const bfloat16* w,
                     int64_t length) {
  dot::panel_piece(out, x, ldx, M, first, w, padded<bfloat16>(length));
}

// Rows [M, K] of numbers of bfloat16, zeros behind an odd K, packed in the tiles of apply.
std::unique_ptr<bfloat16[]> narrowed(const Loop& loop, const float* x, int64_t ldx, int64_t M, int64_t K) {
  const int64_t width = padded<bfloat16>(K), blocks = (M + kRows - 1) / kRows, most = tiles_of(kRows, dot::kTile);
  std::unique_ptr<bfloat16[]> all(new bfloat16[static_cast<size_t>(M * width)]);
  loop(blocks * most, std::max<int64_t>(1, (1 << 15) / (K * dot::kTile)), [&](int64_t begin, int64_t end) {
    std::unique_ptr<bfloat16[]> unpacked(new bfloat16[static_cast<size_t>(dot::kTile * width)]);
    for (int64_t i = begin; i < end; i++) {
      const int64_t block = i / most * kRows, here = std::min(kRows, M - block), tiles = tiles_of(here, dot::kTile);
      if (i % most >= tiles) continue;
      const Rows rows = rows_of_tile(here, i % most, tiles);
      const int64_t from = block + rows.from;
      for (int64_t r = 0; r < rows.count; r++) {
        const float* row = x + (from + r) * ldx;
        bfloat16* to = unpacked.get() + r * width;
        for (int64_t k = 0; k < K; k++) {
          uint32_t bits;
          std::memcpy(&bits, row + k, sizeof bits);
          to[k] = static_cast<bfloat16>(bits >> 16);
        }
        if (K < width) to[K] = 0;
      }
      pack_tile(all.get() + from * width, unpacked.get(), width, rows.count);
    }
  });
  return all;
}
#endif

template <class W, class X>
void apply(const Loop& loop, const W* w, int64_t K, const Output& out, const X* x, int64_t ldx, int64_t M) {
  const int64_t panels = (out.width + kPanel - 1) / kPanel, pieces = pieces_of(K), size = padded<W>(K) * kPanel;
  for (int64_t first = 0; first < M; first += kRows) {
    const int64_t rows = std::min(kRows, M - first);
    const int64_t grain = std::max<int64_t>(1, (1 << 16) / (K * kPanel * std::min<int64_t>(rows, 8)));
    loop(panels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++) {
        for (int64_t i = 0; i < pieces; i++) {
          const Piece piece = piece_of(K, i, pieces, kGroup<W>);
          const Output to{out.y + first * out.stride + p * kPanel,
                          out.stride,
                          std::min(kPanel, out.width - p * kPanel),
                          i == 0 && out.bias != nullptr ? out.bias + p * kPanel : nullptr,
                          out.add || i > 0,
                          out.rounded && i + 1 == pieces};
          any_panel_piece(to, x + first * ldx, ldx, rows, piece.from, w + p * size + piece.from * kPanel, piece.length);
        }
      }
    });
  }
}

}  // namespace

bool takes_pairs() {
#ifdef AF_X86
  static const bool takes = [] {
    if (!dot::available()) return false;
    if (dot_agrees()) return true;
    std::fputs(
        "agentfly: products of bfloat16 by this processor's VDPBF16PS are wrong; AVX-512 multiplies widened numbers "
        "instead\n",
        stderr);
    return false;
  }();
  return takes;
#else
  return false;
#endif
}

void chain(const Sums& sums, const bfloat16* x, int64_t ldx, int64_t M, const Panels& w) {
#ifdef AF_X86
  if (takes_pairs()) return dot::chain(sums, x, ldx, M, w);
#endif
  chain_plain(sums, x, ldx, M, w);
}
void chain(const Sums& sums, const float* x, int64_t ldx, int64_t M, const Panels& w) {
#ifdef AF_X86
  if (has_avx512()) return avx512::chain(sums, x, ldx, M, w);
  if (has_avx2()) return avx2::chain(sums, x, ldx, M, w);
#endif
  chain_plain(sums, x, ldx, M, w);
}

void pack_panels(const Loop& loop, float* to, const float* from, int64_t N, int64_t K, int64_t stride) {
  pack(loop, to, from, N, K, stride);
}
void pack_panels(const Loop& loop, bfloat16* to, const float* from, int64_t N, int64_t K, int64_t stride) {
  pack(loop, to, from, N, K, stride);
}
void pack_panels(const Loop& loop, bfloat16* to, const bfloat16* from, int64_t N, int64_t K, int64_t stride) {
  pack(loop, to, from, N, K, stride);
}

void apply_panels(const Loop& loop, const float* w, int64_t K, const Output& out, const float* x, int64_t ldx,
                  int64_t M) {
  apply(loop, w, K, out, x, ldx, M);
}
void apply_panels(const Loop& loop, const bfloat16* w, int64_t K, const Output& out, const float* x, int64_t ldx,
                  int64_t M) {
#ifdef AF_X86
  if (takes_pairs()) return apply(loop, w, K, out, narrowed(loop, x, ldx, M, K).get(), padded<bfloat16>(K), M);
#endif
  apply(loop, w, K, out, x, ldx, M);
}

}  // namespace af
