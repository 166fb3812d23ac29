// LoRA (Hu et al., arXiv 2106.09685): y = x W^T + s (x A^T) B^T with W frozen, s = alpha / rank.
//
//   u = x A^T,  dB = s dy^T u,  du = s dy B,  dA = du^T x,  dx += du A
#include "train.h"

namespace af {

void low_rank(const af_model& m, const LowRank& a, const at::Tensor& y, const at::Tensor& x) {
  if (!a.A.defined()) return;
  const at::Tensor u = product(x, a.A.t());
  int64_t first = 0;
  for (const LowRank::Part& p : a.parts) {
    const int64_t R = p.B.size(1);
    product_add(y.narrow(1, p.column, p.rows), u.narrow(1, first, R), p.B.t(), m.adapter_scale);
    first += R;
  }
}

at::Tensor low_rank_backward(const af_model& m, const LowRank& a, const at::Tensor& dy, const at::Tensor& dx) {
  if (!a.A.defined()) return {};
  const at::Tensor du = at::empty({dy.size(0), a.A.size(0)}, dy.options());
  int64_t first = 0;
  for (const LowRank::Part& p : a.parts) {
    const int64_t R = p.B.size(1);
    du.narrow(1, first, R).copy_(product(dy.narrow(1, p.column, p.rows), p.B).mul_(m.adapter_scale));
    first += R;
  }
  product_add(dx, du, a.A);
  return du;
}

void low_rank_gradient(const af_model& m, const LowRank& a, const LowRank& g, const at::Tensor& dy, const at::Tensor& x,
                       const at::Tensor& du) {
  if (!a.A.defined()) return;
  const at::Tensor u = product(x, a.A.t());
  int64_t first = 0;
  for (const LowRank::Part& p : g.parts) {
    const int64_t R = p.B.size(1);
    product_add(p.B, dy.narrow(1, p.column, p.rows).t(), u.narrow(1, first, R), m.adapter_scale);
    first += R;
  }
  product_add(g.A, du.t(), x);
}

at::Tensor merged(const af_model& m, const at::Tensor& w, const LowRank& a) {
  if (!a.A.defined()) return w;
  at::Tensor out = w.clone();
  int64_t first = 0;
  for (const LowRank::Part& p : a.parts) {
    const int64_t R = p.B.size(1);
    out.narrow(0, p.column, p.rows).addmm_(p.B, a.A.narrow(0, first, R), 1, m.adapter_scale);
    first += R;
  }
  return out;
}

at::Tensor merged(const af_model& m, const char* name) {
  const at::Tensor& w = m.find(m, name);
  std::string stem = "base_model.model." + std::string(name);
  const std::string suffix = ".weight";
  if (!stem.ends_with(suffix)) return w;
  stem.resize(stem.size() - suffix.size());
  const auto a = m.by_name.find(stem + ".lora_A.weight"), b = m.by_name.find(stem + ".lora_B.weight");
  if (a == m.by_name.end() || b == m.by_name.end()) return w;
  return at::addmm(w, b->second, a->second, 1, m.adapter_scale);
}

}  // namespace af
