// Matrix products of inference: y = x W^T for a few or a few hundred rows x, with W packed once per weight update.
#pragma once
#include "internal.h"
#include "team.h"

namespace af {

// Each element of y is one chain of fused multiply-adds per piece of the inner dimension, the pieces added in order.
// The chain depends on the row and the weights alone: a row's result is the same bits whatever the other rows are,
// however many threads run, and whether the row came in a prompt or as a single token.
class Linear {
 public:
  // Copies weight [N, K], contiguous float32 on the CPU, rounded to bfloat16 with half; half must not change from one
  // pack to the next. bias [N] is read at each product; may be undefined. Sums are float32 either way.
  void pack(Team& team, const at::Tensor& weight, const at::Tensor& bias, bool half);
  // y [M, N] = x [M, K] W^T + bias, or += with add. Rows lie ldy and ldx floats apart.
  void apply(Team& team, float* y, int64_t ldy, const float* x, int64_t ldx, int64_t M, bool add) const;

 private:
  template <class W>
  void apply_panels(Team& team, const W* w, float* y, int64_t ldy, const float* x, int64_t ldx, int64_t M,
                    bool add) const;

  int64_t N_ = 0, K_ = 0;
  at::Tensor panels_;  // [ceil(N/16), K, 16], zeros behind N
  at::Tensor bias_;
};

}  // namespace af
