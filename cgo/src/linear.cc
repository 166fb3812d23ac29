#include "linear.h"

#include <cstring>

#include "kernels.h"
#include "pool.h"
#include "simd.h"

namespace af {
namespace {

constexpr int64_t kWidth = 16;   // columns of a panel: two vectors of AVX2, one of AVX-512
constexpr int64_t kPiece = 384;  // most inner elements of a piece: 24 KiB of weights stay in the first-level cache
constexpr int64_t kRows = 192;   // rows whose inputs stay in the second-level cache

// One piece of K: from .. from + length.
struct Piece {
  int64_t from, length;
};
Piece piece_of(int64_t K, int64_t i, int64_t pieces) {
  const int64_t from = K * i / pieces;
  return {from, K * (i + 1) / pieces - from};
}
int64_t pieces_of(int64_t K) { return (K + kPiece - 1) / kPiece; }

struct Output {
  float* y;
  int64_t stride, width;  // width columns of the panel exist
  const float* bias;      // added, may be null
  bool add;               // y +=
};

// All rows against one piece of one panel.
template <class W>
void panel_piece_plain(const Output& out, const float* x, int64_t ldx, int64_t M, const W* w, int64_t length) {
  for (int64_t r = 0; r < M; r++) {
    float sum[kWidth] = {};
    for (int64_t k = 0; k < length; k++) {
      for (int64_t j = 0; j < kWidth; j++) sum[j] += x[r * ldx + k] * widened(w[k * kWidth + j]);
    }
    float* y = out.y + r * out.stride;
    for (int64_t j = 0; j < out.width; j++) {
      const float v = out.bias != nullptr ? sum[j] + out.bias[j] : sum[j];
      y[j] = out.add ? v + y[j] : v;
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
inline __m256 widen(const bfloat16* w) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
inline Sixteen zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Sixteen load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Sixteen load(const bfloat16* p) { return {widen(p), widen(p + 8)}; }
inline void store(float* p, Sixteen v) { _mm256_storeu_ps(p, v.a), _mm256_storeu_ps(p + 8, v.b); }
inline Sixteen add(Sixteen x, Sixteen y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline void multiply_add(Sixteen& sum, const float* x, Sixteen w) {
  const __m256 v = _mm256_broadcast_ss(x);
  sum.a = _mm256_fmadd_ps(v, w.a, sum.a), sum.b = _mm256_fmadd_ps(v, w.b, sum.b);
}
#include "linear_tile.h"

}  // namespace avx2
AF_TARGET_END

AF_TARGET_AVX512
namespace avx512 {

constexpr int kTile = 14;  // 14 sums and 1 weight of 32 registers: more rows wait for the inputs
using Sixteen = __m512;
constexpr __mmask16 kAll = 0xffff;  // GCC 12 takes what an unmasked form leaves out for uninitialized
inline Sixteen zero() { return _mm512_setzero_ps(); }
inline Sixteen load(const float* p) { return _mm512_loadu_ps(p); }
inline Sixteen load(const bfloat16* p) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, v), 16));
}
inline void store(float* p, Sixteen v) { _mm512_storeu_ps(p, v); }
inline Sixteen add(Sixteen x, Sixteen y) { return _mm512_add_ps(x, y); }
inline void multiply_add(Sixteen& sum, const float* x, Sixteen w) { sum = _mm512_fmadd_ps(_mm512_set1_ps(*x), w, sum); }
#include "linear_tile.h"

}  // namespace avx512
AF_TARGET_END
#endif

template <class W>
void panel_piece(const Output& out, const float* x, int64_t ldx, int64_t M, const W* w, int64_t length) {
#ifdef AF_X86
  if (has_avx512()) return avx512::panel_piece(out, x, ldx, M, w, length);
  if (has_avx2()) return avx2::panel_piece(out, x, ldx, M, w, length);
#endif
  panel_piece_plain(out, x, ldx, M, w, length);
}

template <class W>
void pack_panels(Team& team, W* to, const float* from, int64_t N, int64_t K) {
  const int64_t panels = (N + kWidth - 1) / kWidth;
  team.run(panels, std::max<int64_t>(1, (1 << 14) / K), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++) {
      W* out = to + p * K * kWidth;
      const int64_t rows = std::min(kWidth, N - p * kWidth);
      if (rows < kWidth) std::memset(out, 0, static_cast<size_t>(K * kWidth) * sizeof(W));
      for (int64_t first = 0; first < K; first += 16) {  // squares of 16 x 16 stay in the cache
        const int64_t last = std::min(K, first + 16);
        for (int64_t j = 0; j < rows; j++) {
          const float* row = from + (p * kWidth + j) * K;
          for (int64_t k = first; k < last; k++) round_to(out[k * kWidth + j], row[k]);
        }
      }
    }
  });
}

}  // namespace

void Linear::pack(Team& team, const at::Tensor& weight, const at::Tensor& bias, bool half) {
  const at::Tensor source = weight.contiguous();
  N_ = source.size(0);
  K_ = source.size(1);
  bias_ = bias;
  const int64_t panels = (N_ + kWidth - 1) / kWidth;
  if (!panels_.defined()) {
    panels_ = at::empty({panels, K_, kWidth}, half ? at::kBFloat16 : at::kFloat);
    advise_huge(panels_.mutable_data_ptr(), panels_.nbytes());
  }
  const float* from = source.const_data_ptr<float>();
  if (half) {
    pack_panels(team, static_cast<bfloat16*>(panels_.mutable_data_ptr()), from, N_, K_);
  } else {
    pack_panels(team, static_cast<float*>(panels_.mutable_data_ptr()), from, N_, K_);
  }
}

template <class W>
void Linear::apply_panels(Team& team, const W* w, float* y, int64_t ldy, const float* x, int64_t ldx, int64_t M,
                          bool add) const {
  const int64_t panels = (N_ + kWidth - 1) / kWidth, pieces = pieces_of(K_);
  const float* bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  for (int64_t first = 0; first < M; first += kRows) {
    const int64_t rows = std::min(kRows, M - first);
    const int64_t grain = std::max<int64_t>(1, (1 << 16) / (K_ * kWidth * std::min<int64_t>(rows, 8)));
    team.run(panels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++) {
        for (int64_t i = 0; i < pieces; i++) {
          const Piece piece = piece_of(K_, i, pieces);
          const Output out{y + first * ldy + p * kWidth, ldy, std::min(kWidth, N_ - p * kWidth),
                           i == 0 && bias != nullptr ? bias + p * kWidth : nullptr, add || i > 0};
          panel_piece(out, x + first * ldx + piece.from, ldx, rows, w + (p * K_ + piece.from) * kWidth, piece.length);
        }
      }
    });
  }
}

void Linear::apply(Team& team, float* y, int64_t ldy, const float* x, int64_t ldx, int64_t M, bool add) const {
  const void* w = panels_.const_data_ptr();
  if (panels_.scalar_type() == at::kBFloat16)
    return apply_panels(team, static_cast<const bfloat16*>(w), y, ldy, x, ldx, M, add);
  apply_panels(team, static_cast<const float*>(w), y, ldy, x, ldx, M, add);
}

}  // namespace af
