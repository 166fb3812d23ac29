// Matrix products of few or a few hundred rows x, with the matrix packed in panels: y = x W^T. The engine packs its
// weights once per update. The trainer takes the same products for a forward in bfloat16, so that both get the same
// bits.
#pragma once
#include "internal.h"
#include "panel.h"

namespace af {

// Each element of y is one chain of fused multiply-adds per piece of the inner dimension, the pieces added in order.
// The chain depends on the row and the weights alone: a row's result is the same bits whatever the other rows are,
// however many threads run, and whether the row came in a prompt or as a single token.
//
// In bfloat16 the chain goes by pairs of inner elements: see panel.h.
class Linear {
 public:
  // Copies weight [N, K] on the CPU, float32 or bfloat16, rounded to bfloat16 with half; half must not change from one
  // pack to the next. bias [N] float32 is read at each product; may be undefined. pool: of the
  // copy's memory, for one that is made often; may be null.
  void pack(const Loop& loop, const at::Tensor& weight, const at::Tensor& bias, bool half, Pool* pool = nullptr);
  // y [M, N] = x [M, K] W^T + bias, or += with add, summed in float32. With rounded the sums are stored as the nearest
  // numbers of bfloat16. Rows of y lie ldy floats apart; with half x must hold numbers of bfloat16.
  void apply(const Loop& loop, float* y, int64_t ldy, const Rows& x, int64_t M, bool add, bool rounded) const;
  // The same with half of x [M, K] in bfloat16: y [M, N] is float32, or bfloat16 and rounded. Both have dense rows.
  void apply(const Loop& loop, const at::Tensor& y, const at::Tensor& x, bool add) const;

 private:
  int64_t N_ = 0, K_ = 0;
  at::Tensor panels_;  // [ceil(N/16), K, 16]; with half [ceil(N/16), ceil(K/2), 16, 2]; zeros behind N and K
  at::Tensor bias_;
};

}  // namespace af
