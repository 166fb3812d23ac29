#include "linear.h"

#include "pool.h"

namespace af {

void Linear::pack(const Loop& loop, const at::Tensor& weight, const at::Tensor& bias, bool half, Pool* pool) {
  const at::Tensor source = weight.stride(1) == 1 ? weight : weight.contiguous();
  N_ = source.size(0);
  K_ = source.size(1);
  bias_ = bias;
  const int64_t panels = parts_of(N_, kPanel);
  if (!panels_.defined()) {
    const auto type = half ? at::kBFloat16 : at::kFloat;
    const int64_t size = (half ? padded<bfloat16>(K_) : K_) * kPanel;
    panels_ = pool != nullptr ? pool->take({panels, size}, type) : at::empty({panels, size}, type);
    if (pool == nullptr) advise_huge(panels_.mutable_data_ptr(), panels_.nbytes());
  }
  const int64_t stride = N_ == 1 ? K_ : source.stride(0);
  const void* from = source.const_data_ptr();
  void* to = panels_.mutable_data_ptr();
  if (!half) {
    pack_panels(loop, static_cast<float*>(to), static_cast<const float*>(from), N_, K_, stride);
  } else if (source.scalar_type() == at::kFloat) {
    pack_panels(loop, static_cast<bfloat16*>(to), static_cast<const float*>(from), N_, K_, stride);
  } else {
    pack_panels(loop, static_cast<bfloat16*>(to), static_cast<const bfloat16*>(from), N_, K_, stride);
  }
}

void Linear::apply(const Loop& loop, float* y, int64_t ldy, const Rows& x, int64_t M, bool add, bool rounded) const {
  const float* bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  const Output out{y, ldy, N_, bias, add, rounded};
  const void* w = panels_.const_data_ptr();
  if (panels_.scalar_type() == at::kBFloat16) return apply_panels(loop, static_cast<const bfloat16*>(w), K_, out, x, M);
  apply_panels(loop, static_cast<const float*>(w), K_, out, x, M);
}

void Linear::apply(const Loop& loop, const at::Tensor& y, const at::Tensor& x, bool add) const {
  TORCH_INTERNAL_ASSERT(y.stride(1) == 1 && x.stride(1) == 1 && x.size(1) == K_ && y.size(1) == N_);
  const int64_t M = x.size(0);
  const HalfRows rows{static_cast<const bfloat16*>(x.const_data_ptr()), x.stride(0)};
  const auto* w = static_cast<const bfloat16*>(panels_.const_data_ptr());
  const float* bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  if (y.scalar_type() == at::kFloat)
    return apply_panels(loop, w, K_, Output{y.mutable_data_ptr<float>(), y.stride(0), N_, bias, add, false}, rows, M);
  apply_panels(loop, w, K_, HalfOutput{static_cast<bfloat16*>(y.mutable_data_ptr()), y.stride(0), N_, bias, add}, rows,
               M);
}

}  // namespace af
