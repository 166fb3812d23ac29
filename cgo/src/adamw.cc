#include "adamw.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "cuda/launch.h"

namespace af {

StepNumbers step_numbers(const af_adamw_config& c, int64_t t, double lr, double gradient_scale) {
  const double steps = static_cast<double>(t);
  StepNumbers n{.config = c, .lr = lr, .gradient_scale = gradient_scale, .step = steps};
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
  return n;
}

void adamw(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
           const at::Tensor& rounded, const StepNumbers& n) {
  if (p.numel() == 0) return;
  const cuda::Kernels* kernels = cuda::kernels(p);
  if (kernels != nullptr && kernels->adamw(p, g, m, v, rounded, n.kernel)) return;
  const auto number = [&](double value) { return at::full({}, value, p.options()); };
  std::optional<at::Tensor> scale;  // that the gradient is divided by
  if (n.gradient_scale != 1) scale = number(1 / n.gradient_scale);
  at::_fused_adamw_({p}, {g}, {m}, {v}, {}, {number(n.step)}, n.lr, n.config.beta1, n.config.beta2,
                    n.config.weight_decay, n.config.eps, /*amsgrad=*/false, /*maximize=*/false, scale, std::nullopt);
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
