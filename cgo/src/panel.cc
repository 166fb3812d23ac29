#include "panel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <type_traits>

#include "simd.h"
#ifdef AF_X86
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace af {
namespace {

constexpr int64_t kPiece = 384;  // most inner elements of a piece: 24 KiB of weights stay in the first-level cache
constexpr int64_t kRows = 192;   // most rows of a block: their inputs stay in the second-level cache
constexpr int64_t kAlone = 48;   // least rows that a thread takes alone: of fewer it would wait for the weights
constexpr int64_t kPart = 128;   // most of them: of more rows a thread has several parts, and who is free takes one

// Parts of n elements of about equal length, at most most.
struct Part {
  int64_t from, count;
};
Part part_of(int64_t n, int64_t i, int64_t parts) {
  const int64_t from = n * i / parts;
  return {from, n * (i + 1) / parts - from};
}
const Loop kAtOnce{1, [](int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& f) { f(0, n); }};

// A piece of K that begins at a multiple of step.
Part piece_of(int64_t K, int64_t i, int64_t pieces, int64_t step) {
  const Part steps = part_of(parts_of(K, step), i, pieces);
  return {steps.from * step, std::min(K - steps.from * step, steps.count * step)};
}

// Of the output the columns of count panels from panel on, to which piece i of K is added: the first brings the bias,
// the last is rounded.
Output part_of_output(const Output& all, int64_t panel, int64_t count, int64_t i, int64_t pieces) {
  const int64_t column = panel * kPanel;
  Output out = all;
  out.y += column;
  out.width = std::min(count * kPanel, all.width - column);
  out.bias = i == 0 && all.bias != nullptr ? all.bias + column : nullptr;
  out.add = all.add || i > 0;
  out.rounded = all.rounded && i + 1 == pieces;
  return out;
}

void make_rows(const Rows& x, int64_t first, int64_t count) {
  for (int64_t r = first; x.make && r < first + count; r++) x.make(r);
}
void make_rows(const HalfRows&, int64_t, int64_t) {}

// Panels that are worth a thread, of products with M rows.
int64_t grain_of(int64_t M, int64_t K) {
  return std::max<int64_t>(1, (1 << 16) / (K * kPanel * std::min<int64_t>(M, 8)));
}

float finished(float v, const Output& out, int64_t column, float before) {
  if (out.bias != nullptr) v += out.bias[column];
  if (out.add) v += before;
  if (!out.rounded) return v;
  bfloat16 half;
  round_to(half, v);
  return widened(half);
}

// The columns of the panels begin .. end of x w.
template <class W>
void multiply_plain(const Output& all, const float* x, int64_t ldx, int64_t M, const W* w, int64_t K, int64_t begin,
                    int64_t end) {
  constexpr int64_t group = kGroup<W>;
  const int64_t pieces = parts_of(K, kPiece);
  for (int64_t p = begin; p < end; p++) {
    for (int64_t i = 0; i < pieces; i++) {
      const Part piece = piece_of(K, i, pieces, group);
      const Output out = part_of_output(all, p, 1, i, pieces);
      const W* panel = w + (p * padded<W>(K) + piece.from) * kPanel;
      for (int64_t r = 0; r < M; r++) {
        float sum[kPanel] = {};
        for (int64_t k = 0; k < piece.count; k += group) {
          for (int64_t e = std::min(group, piece.count - k) - 1; e >= 0; e--) {
            const float v = x[r * ldx + piece.from + k + e];
            for (int64_t j = 0; j < kPanel; j++) sum[j] += v * widened(panel[k * kPanel + j * group + e]);
          }
        }
        float* y = out.y + r * out.stride;
        for (int64_t j = 0; j < out.width; j++) y[j] = finished(sum[j], out, j, y[j]);
      }
    }
  }
}

template <class X>
void chain_plain(const Sums& sums, const X* x, int64_t ldx, int64_t M, const Panels& w) {
  for (int64_t r = 0; r < M; r++) {
    for (int64_t p = 0; p < w.count; p++) {
      float* y = sums.y + r * sums.stride + p * kPanel;
      if (!sums.onward) std::fill_n(y, kPanel, 0.0f);
      for (int64_t k = 0; k < w.K; k += 2) {
        const bfloat16* pairs = w.at[p * w.pieces + k / w.piece] + k % w.piece * kPanel;
        for (int64_t i : {1, 0}) {
          for (int64_t j = 0; j < kPanel; j++) y[j] += widened(x[r * ldx + k + i]) * widened(pairs[2 * j + i]);
        }
      }
    }
  }
}

#ifdef AF_X86
AF_TARGET_AVX2
namespace avx2 {

constexpr int kTile = 6;  // rows of a tile: 12 registers of sums, 2 of weights and 1 of an input
constexpr int kSums = 5;  // of panels abreast, where there are fewer rows: each has two more registers of weights
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

constexpr int kTile = 8;   // rows of a tile: of three panels 24 products take 11 loads
constexpr int kSums = 24;  // with 4 weights and 1 input 29 of the 32 registers
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

// Eight numbers of bfloat16 as four pairs.
inline __m128 pairs_of(const float* x) {
  const __m128 a = _mm_loadu_ps(x), b = _mm_loadu_ps(x + 4);
  const __m128i first = _mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
  return _mm_or_ps(_mm_castsi128_ps(_mm_srli_epi32(first, 16)), _mm_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
}
inline __m128 pairs_of(const bfloat16* x) {
  return _mm_castsi128_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}

#ifdef AF_EMULATED_PAIRS  // of a test: the instructions lane by lane, on any processor
#include AF_EMULATED_PAIRS
#else
AF_TARGET_AVX512BF16
namespace dot {

using namespace avx512;
using avx512::multiply_add;
inline bool available() { return has_avx512bf16(); }
inline void multiply_add(Sixteen& sum, const bfloat16* x, __m512i w) {
  int pair;
  std::memcpy(&pair, x, sizeof pair);
  sum = _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)_mm512_set1_epi32(pair));
}
#include "panel_tile.h"

}  // namespace dot
AF_TARGET_END

AF_TARGET_AVX512BF16
namespace amx {

// Linux lends a process the tile registers when it asks for them, and not where a thread's stack for signals is too
// small for their state.
inline bool available() {
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return has_amx() && syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}
template <int tile>
inline void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
template <int tile>
inline void load(const bfloat16* from) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(int64_t{64}), "i"(tile) : "memory");
}
template <int tile>
inline void store(float* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(int64_t{64}), "i"(tile) : "memory");
}
template <int sums, int x, int w>
inline void add_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(x), "i"(w));
}
template <class Shape>
inline void shape(const Shape& rows) {
  asm volatile("ldtilecfg %0" ::"m"(rows));
}
inline void release() { asm volatile("tilerelease"); }
#include "panel_amx.h"

}  // namespace amx
AF_TARGET_END
#endif

// rows of x [rows, K] as a tile reads them: [ceil(K/2), rows, 2], a zero behind an odd K.
template <class S>
void pack_tile(bfloat16* to, const S* x, int64_t ldx, int64_t K, int64_t rows) {
  int64_t k = 0;
  for (; rows >= 4 && k + 8 <= K; k += 8) {
    for (int64_t r = 0; r < rows; r += 4) {
      const int64_t first = std::min(r, rows - 4);  // some rows twice where four do not divide them
      const S* from = x + first * ldx + k;
      __m128 a = pairs_of(from), b = pairs_of(from + ldx), c = pairs_of(from + 2 * ldx), d = pairs_of(from + 3 * ldx);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* at = reinterpret_cast<float*>(to + k * rows + 2 * first);
      _mm_storeu_ps(at, a), _mm_storeu_ps(at + rows, b), _mm_storeu_ps(at + 2 * rows, c),
          _mm_storeu_ps(at + 3 * rows, d);
    }
  }
  for (; k < K; k += 2) {
    for (int64_t r = 0; r < rows; r++) {
      bfloat16* pair = to + k * rows + 2 * r;
      round_to(pair[0], widened(x[r * ldx + k]));
      round_to(pair[1], k + 1 < K ? widened(x[r * ldx + k + 1]) : 0);
    }
  }
}

// The M rows of x from first on, at most kRows, packed in the tiles of a product.
template <class R>
void pack_rows(const Loop& loop, bfloat16* to, const R& x, int64_t first, int64_t M, int64_t K) {
  const int64_t width = padded<bfloat16>(K), tiles = parts_of(M, dot::kTile);
  loop.run(tiles, std::max<int64_t>(1, (1 << 12) / (K * dot::kTile)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const Part rows = part_of(M, i, tiles);
      const int64_t from = first + rows.from;
      make_rows(x, from, rows.count);
      pack_tile(to + rows.from * width, x.x + from * x.stride, x.stride, K, rows.count);
    }
  });
}

// Whether an instruction gives what the widened numbers do, but for rounding, on one planted product of 35 rows, packed
// to so many numbers.
template <class Pack, class Multiply>
bool agrees(int64_t (*width)(int64_t), const Pack& pack, const Multiply& multiply) {
  constexpr int64_t M = 35, K = 74, N = 5 * kPanel;
  float x[M * K], got[M * N], want[M * N];
  bfloat16 w[K * N];
  uint32_t state = 1;
  const auto next = [&state] {  // +-1 to +-2 with the 7 bits of a bfloat16
    state = state * 1664525 + 1013904223;
    return static_cast<bfloat16>(0x3f80 | (state >> 24 & 0x7f) | (state >> 16 & 0x8000));
  };
  for (float& v : x) v = widened(next());
  for (bfloat16& v : w) v = next();
  std::unique_ptr<bfloat16[]> packed(new bfloat16[static_cast<size_t>(M * width(K))]);
  pack(kAtOnce, packed.get(), Rows{x, K, nullptr}, 0, M, K);
  multiply({got, N, N, nullptr, false, false}, packed.get(), width(K), M, w, K, 0, N / kPanel);
  multiply_plain({want, N, N, nullptr, false, false}, x, K, M, w, K, 0, N / kPanel);
  for (int64_t i = 0; i < M * N; i++) {
    if (!(std::abs(got[i] - want[i]) <= 1e-3f)) return false;  // of sums of 74 products of at most 4
  }
  return true;
}
// Whether products of bfloat16, attention's aside, go by AMX. The first caller tries it.
bool takes_tiles() {
  static const bool takes = [] {
    if (!takes_pairs() || !amx::available()) return false;
    if (agrees(amx::packed_width, amx::pack_rows<Rows>, amx::multiply)) return true;
    std::fputs("agentfly: products of bfloat16 by this processor's TDPBF16PS are wrong; VDPBF16PS multiplies instead\n",
               stderr);
    return false;
  }();
  return takes;
}

void any_multiply(const Output& out, const bfloat16* x, int64_t ldx, int64_t M, const bfloat16* w, int64_t K,
                  int64_t begin, int64_t end) {
  if (takes_tiles()) return amx::multiply(out, x, ldx, M, w, K, begin, end);
  dot::multiply(out, x, ldx, M, w, K, begin, end);
}
#endif

template <class W>
void any_multiply(const Output& out, const float* x, int64_t ldx, int64_t M, const W* w, int64_t K, int64_t begin,
                  int64_t end) {
#ifdef AF_X86
  if (has_avx512()) return avx512::multiply(out, x, ldx, M, w, K, begin, end);
  if (has_avx2()) return avx2::multiply(out, x, ldx, M, w, K, begin, end);
#endif
  multiply_plain(out, x, ldx, M, w, K, begin, end);
}

template <class W, class S>
void pack(const Loop& loop, W* to, const S* from, int64_t N, int64_t K, int64_t stride) {
  constexpr int64_t group = kGroup<W>;
  const int64_t panels = parts_of(N, kPanel), size = padded<W>(K) * kPanel;
  loop.run(panels, std::max<int64_t>(1, (1 << 14) / K), [&](int64_t begin, int64_t end) {
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

template <class W, class X>
void apply_block(const Loop& loop, const W* w, int64_t K, const Output& out, const X* x, int64_t ldx, int64_t M) {
  loop.run(parts_of(out.width, kPanel), grain_of(M, K),
           [&](int64_t begin, int64_t end) { any_multiply(out, x, ldx, M, w, K, begin, end); });
}
template <class X>
void apply_block(const Loop& loop, const bfloat16* w, int64_t K, const HalfOutput& out, const X* x, int64_t ldx,
                 int64_t M) {
  constexpr int64_t kMost = 6, stride = kMost * kPanel;  // panels whose sums, 72 KiB, stay in the second-level cache
  const int64_t size = padded<bfloat16>(K) * kPanel;
  loop.run(parts_of(out.width, kPanel), grain_of(M, K), [&](int64_t begin, int64_t end) {
    alignas(64) float sums[kRows * stride];
    for (int64_t p = begin; p < end; p += kMost) {
      const int64_t count = std::min(kMost, end - p), column = p * kPanel;
      const int64_t width = std::min(count * kPanel, out.width - column);
      bfloat16* y = out.y + column;
      for (int64_t r = 0; out.add && r < M; r++) kernel::widen(sums + r * stride, y + r * out.stride, width);
      any_multiply({sums, stride, width, out.bias != nullptr ? out.bias + column : nullptr, out.add, false}, x, ldx, M,
                   w + p * size, K, 0, count);
      for (int64_t r = 0; r < M; r++) kernel::to_half(y + r * out.stride, sums + r * stride, width);
    }
  });
}

// Calls f(within, out, first, count) for blocks of at most kRows of M rows, out being where the rows from first on go.
template <class Out, class F>
void in_blocks(const Loop& loop, const Out& all, int64_t M, const F& f) {
  in_parts(loop, M, [&](const Loop& within, int64_t begin, int64_t rows) {
    for (int64_t at = 0; at < rows; at += kRows) {
      Out out = all;
      out.y += (begin + at) * out.stride;
      f(within, out, begin + at, std::min(kRows, rows - at));
    }
  });
}

// Calls f(begin, end) for pieces of M rows of K numbers.
template <class F>
void each_row(const Loop& loop, int64_t M, int64_t K, const F& f) {
  loop.run(M, std::max<int64_t>(1, (1 << 14) / K), f);
}

template <class W>
void apply(const Loop& loop, const W* w, int64_t K, const Output& out, const Rows& x, int64_t M) {
  in_blocks(loop, out, M, [&](const Loop& within, const Output& to, int64_t first, int64_t rows) {
    if (x.make) {
      each_row(within, rows, K, [&](int64_t begin, int64_t end) { make_rows(x, first + begin, end - begin); });
    }
    apply_block(within, w, K, to, x.x + first * x.stride, x.stride, rows);
  });
}

// The products by the instruction for pairs; false where there is none.
template <class Out, class R>
bool apply_by_pairs([[maybe_unused]] const Loop& loop, [[maybe_unused]] const bfloat16* w, [[maybe_unused]] int64_t K,
                    [[maybe_unused]] const Out& out, [[maybe_unused]] const R& x, [[maybe_unused]] int64_t M) {
#ifdef AF_X86
  if (!takes_pairs()) return false;
  const bool tiles = takes_tiles();
  const int64_t width = tiles ? amx::packed_width(K) : padded<bfloat16>(K);
  in_blocks(loop, out, M, [&](const Loop& within, const Out& to, int64_t first, int64_t rows) {
    std::unique_ptr<bfloat16[]> packed(new bfloat16[static_cast<size_t>(rows * width)]);
    tiles ? amx::pack_rows(within, packed.get(), x, first, rows, K)
          : pack_rows(within, packed.get(), x, first, rows, K);
    apply_block(within, w, K, to, packed.get(), width, rows);
  });
  return true;
#else
  return false;
#endif
}

template <class Out>
void apply(const Loop& loop, const bfloat16* w, int64_t K, const Out& out, const HalfRows& x, int64_t M) {
  in_blocks(loop, out, M, [&](const Loop& within, const Out& to, int64_t first, int64_t rows) {
    std::unique_ptr<float[]> wide(new float[static_cast<size_t>(rows * K)]);
    each_row(within, rows, K, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; r++) kernel::widen(wide.get() + r * K, x.x + (first + r) * x.stride, K);
    });
    apply_block(within, w, K, to, wide.get(), K, rows);
  });
}

}  // namespace

bool takes_pairs() {
#ifdef AF_X86
  static const bool takes = [] {
    if (!dot::available()) return false;
    if (agrees(padded<bfloat16>, pack_rows<Rows>, dot::multiply<bfloat16, bfloat16>)) return true;
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

void in_parts(const Loop& loop, int64_t M, const std::function<void(const Loop&, int64_t, int64_t)>& f) {
  if (loop.threads == 1 || M < loop.threads * kAlone) return f(loop, 0, M);
  const int64_t parts = parts_of(M, loop.threads * kPart) * loop.threads;  // as many for each thread
  loop.run(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const Part rows = part_of(M, i, parts);
      f(kAtOnce, rows.from, rows.count);
    }
  });
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

void apply_panels(const Loop& loop, const float* w, int64_t K, const Output& out, const Rows& x, int64_t M) {
  apply(loop, w, K, out, x, M);
}
void apply_panels(const Loop& loop, const bfloat16* w, int64_t K, const Output& out, const Rows& x, int64_t M) {
  if (!apply_by_pairs(loop, w, K, out, x, M)) apply(loop, w, K, out, x, M);
}
void apply_panels(const Loop& loop, const bfloat16* w, int64_t K, const Output& out, const HalfRows& x, int64_t M) {
  if (!apply_by_pairs(loop, w, K, out, x, M)) apply(loop, w, K, out, x, M);
}
void apply_panels(const Loop& loop, const bfloat16* w, int64_t K, const HalfOutput& out, const HalfRows& x, int64_t M) {
  if (!apply_by_pairs(loop, w, K, out, x, M)) apply(loop, w, K, out, x, M);
}

}  // namespace af
