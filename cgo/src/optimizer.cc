// AdamW with decoupled weight decay (Loshchilov & Hutter, arXiv 1711.05101), as torch.optim.AdamW, over all parameters
// at once.
#include <ATen/Parallel.h>

#include <cmath>

#include "kernels.h"
#include "train.h"

struct af_optimizer {
  std::shared_ptr<af_model> model;
  af_adamw_config config;
  af::Parameters exp_avg, exp_avg_sq;
  int64_t step = 0;
};

namespace af {
namespace {

constexpr int64_t kChunk = 1 << 16;  // elements summed at once, so that the norm has one order of additions

double norm_of(const af_model& m) {
  const at::Tensor& flat = m.grad.flat;
  if (!use_float_kernels(m)) return std::sqrt(flat.square().sum(at::kDouble).item<double>());
  const int64_t n = flat.numel(), chunks = (n + kChunk - 1) / kChunk;
  const float* g = flat.const_data_ptr<float>();
  std::vector<double> sums(chunks);
  at::parallel_for(0, chunks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      sums[i] = kernel::sum_squares(g + i * kChunk, std::min(kChunk, n - i * kChunk));
  });
  double total = 0;
  for (double s : sums) total += s;
  return std::sqrt(total);
}

void step_generic(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
                  const kernel::AdamW& a) {
  g.mul_(a.gradient_scale);
  m.mul_(a.beta1).add_(g, a.rest1);
  v.mul_(a.beta2).addcmul_(g, g, a.rest2);
  p.mul_(a.decay).addcdiv_(m, v.sqrt().div_(a.sqrt_correction).add_(a.eps), -a.step_size);
  g.zero_();
}

void step(af_optimizer& o, double lr, double gradient_scale) {
  af_model& model = *o.model;
  const auto& c = o.config;
  const double t = static_cast<double>(++o.step);
  kernel::AdamW a;
  a.beta1 = static_cast<float>(c.beta1);
  a.rest1 = static_cast<float>(1 - c.beta1);
  a.beta2 = static_cast<float>(c.beta2);
  a.rest2 = static_cast<float>(1 - c.beta2);
  a.eps = static_cast<float>(c.eps);
  a.decay = static_cast<float>(1 - lr * c.weight_decay);
  a.step_size = static_cast<float>(lr / (1 - std::pow(c.beta1, t)));
  a.sqrt_correction = static_cast<float>(std::sqrt(1 - std::pow(c.beta2, t)));
  a.gradient_scale = static_cast<float>(gradient_scale);
  if (!use_float_kernels(model)) return step_generic(model.flat, model.grad.flat, o.exp_avg.flat, o.exp_avg_sq.flat, a);
  float *p = model.flat.mutable_data_ptr<float>(), *g = model.grad.flat.mutable_data_ptr<float>();
  float *m = o.exp_avg.flat.mutable_data_ptr<float>(), *v = o.exp_avg_sq.flat.mutable_data_ptr<float>();
  at::parallel_for(0, model.flat.numel(), kChunk, [&](int64_t begin, int64_t end) {
    kernel::adamw(p + begin, g + begin, m + begin, v + begin, end - begin, a);
  });
}

const at::Tensor& state_of(const af_optimizer& o, const char* name, int which) {
  if (which != 0 && which != 1)
    throw InputError("optimizer state " + std::to_string(which) + " does not exist, allowed are 0 and 1");
  const Parameters& all = which == 0 ? o.exp_avg : o.exp_avg_sq;
  if (!all.by_name.contains(name) && o.model->by_name.contains(name))
    throw InputError(std::string("parameter ") + name + " has no optimizer state, it is not trained");
  return o.model->find(all, name);
}

void check_size(const at::Tensor& t, const char* name, int64_t n) {
  if (t.numel() == n) return;
  throw InputError(std::string("optimizer state of ") + name + " has " + std::to_string(t.numel()) +
                   " elements, the buffer has " + std::to_string(n));
}

void check_config(const af_adamw_config& c) {
  auto fraction = [](double b) { return b >= 0 && b < 1; };
  if (!fraction(c.beta1) || !fraction(c.beta2)) throw InputError("beta1 and beta2 must be at least 0 and below 1");
  if (!(c.eps > 0) || !std::isfinite(c.eps)) throw InputError("eps must be above 0");
  if (!(c.weight_decay >= 0) || !std::isfinite(c.weight_decay)) throw InputError("weight_decay must be at least 0");
}

}  // namespace
}  // namespace af

extern "C" {

af_error* af_optimizer_new(af_model* m, const af_adamw_config* c, af_optimizer** out) {
  return af::guard([&] {
    af::check_config(*c);
    auto o = std::make_unique<af_optimizer>();
    o->model = m->shared_from_this();
    o->config = *c;
    o->exp_avg = m->zeros();
    o->exp_avg_sq = m->zeros();
    af::live++;
    *out = o.release();
  });
}

void af_optimizer_free(af_optimizer* o) {
  if (o == nullptr) return;
  af::live--;
  delete o;
}

af_error* af_optimizer_step(af_optimizer* o, double lr, double max_norm, double* norm) {
  return af::guard([&] {
    if (!std::isfinite(lr) || lr < 0) throw af::InputError("the learning rate must be finite and at least 0");
    if (!(max_norm >= 0)) throw af::InputError("max_norm must be at least 0");
    af_model& m = *o->model;
    if (o->exp_avg.trained != m.trained)
      throw af::InputError("the optimizer was made before a value head or an adapter was added; make it afterwards");
    if (!m.grad.flat.defined()) m.grad = m.zeros();
    *norm = af::norm_of(m);
    if (!std::isfinite(*norm)) {
      m.grad.flat.zero_();
      throw af::NonFiniteError("the gradient norm is not finite; gradients are dropped, parameters are unchanged");
    }
    af::step(*o, lr, max_norm > 0 ? std::min(1.0, max_norm / (*norm + 1e-6)) : 1.0);
    m.version++;
  });
}

af_error* af_optimizer_zero_grad(af_optimizer* o) {
  return af::guard([&] {
    if (o->model->grad.flat.defined()) o->model->grad.flat.zero_();
  });
}

af_error* af_optimizer_get_state(af_optimizer* o, const char* name, int which, float* out, int64_t n) {
  return af::guard([&] {
    const at::Tensor& t = af::state_of(*o, name, which);
    af::check_size(t, name, n);
    at::from_blob(out, t.sizes(), at::kFloat).copy_(t);
  });
}

af_error* af_optimizer_set_state(af_optimizer* o, const char* name, int which, const float* data, int64_t n) {
  return af::guard([&] {
    const at::Tensor& t = af::state_of(*o, name, which);
    af::check_size(t, name, n);
    t.copy_(at::from_blob(const_cast<float*>(data), t.sizes(), at::kFloat));
  });
}

int64_t af_optimizer_get_step(const af_optimizer* o) { return o->step; }
void af_optimizer_set_step(af_optimizer* o, int64_t step) { o->step = step; }

}  // extern "C"
