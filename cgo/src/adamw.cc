#include "adamw.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "cuda/launch.h"

namespace af {

StepNumbers step_numbers(const af_adamw_config& c, int64_t t, double lr, double gradient_scale, at::Device device,
                         bool aten) {
  StepNumbers n;
  n.config = c, n.lr = lr;
  const double steps = static_cast<double>(t);
  kernel::AdamW& a = n.kernel;
  a.beta1 = static_cast<float>(c.beta1);
  a.rest1 = static_cast<float>(1 - c.beta1);
  a.beta2 = static_cast<float>(c.beta2);
  a.rest2 = static_cast<float>(1 - c.beta2);
  a.eps = static_cast<float>(c.eps);
  a.decay = static_cast<float>(1 - lr * c.weight_decay);
  a.step_size = static_cast<float>(lr / (1 - std::pow(c.beta1, steps)));
  a.sqrt_correction = static_cast<float>(std::sqrt(1 - std::pow(c.beta2, steps)));
  a.gradient_scale = static_cast<float>(gradient_scale);
  if (!aten) return n;
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  n.count = at::full({}, steps, options);
  if (gradient_scale != 1) n.grad_scale = at::full({}, 1 / gradient_scale, options);
  return n;
}

void adamw(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
           const at::Tensor& rounded, const StepNumbers& n) {
  if (p.numel() == 0) return;
  const cuda::Kernels* kernels = cuda::kernels(p);
  if (kernels != nullptr && kernels->adamw(p, g, m, v, rounded, n.kernel)) return;
  std::optional<at::Tensor> scale;
  if (n.grad_scale.defined()) scale = n.grad_scale;
  at::_fused_adamw_({p}, {g}, {m}, {v}, {}, {n.count}, n.lr, n.config.beta1, n.config.beta2, n.config.weight_decay,
                    n.config.eps, /*amsgrad=*/false, /*maximize=*/false, scale, std::nullopt);
  g.zero_();
  if (rounded.defined()) rounded.copy_(p);
}

void adamw_on_kernels(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
                      const StepNumbers& n) {
  constexpr int64_t kChunk = 1 << 16;
  float *pi = p.mutable_data_ptr<float>(), *gi = g.mutable_data_ptr<float>();
  float *mi = m.mutable_data_ptr<float>(), *vi = v.mutable_data_ptr<float>();
  at::parallel_for(0, p.numel(), kChunk, [&](int64_t begin, int64_t end) {
    kernel::adamw(pi + begin, gi + begin, mi + begin, vi + begin, end - begin, n.kernel);
  });
}

}  // namespace af
