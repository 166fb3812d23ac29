// Norms, RoPE, SwiGLU and row sums of the training path. Devices other than the CPU take the kernel of cuda/kernels.cu
// where there is one, and else the ATen expression after it.
#include <ATen/Parallel.h>

#include "cuda/launch.h"
#include "profile.h"
#include "train.h"

namespace af {
namespace {

// A [rows, heads, n] view as the kernels see it.
template <class X>
struct Rows {
  explicit Rows(const at::Tensor& t)
      : data(elements<X>(t)),
        rows(t.size(0)),
        heads(t.size(1)),
        n(t.size(2)),
        row_stride(t.stride(0)),
        head_stride(t.stride(1)) {
    TORCH_INTERNAL_ASSERT(t.stride(2) == 1);
  }
  X* at(int64_t r, int64_t h) const { return data + r * row_stride + h * head_stride; }
  X* data;
  int64_t rows, heads, n, row_stride, head_stride;
};

constexpr int64_t kParts = 16;  // pieces of a sum over rows, whatever the number of threads

int64_t grain(int64_t floats_per_row) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, floats_per_row)); }

}  // namespace

void rms_norm(const af_model& m, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y,
              const at::Tensor& rstd) {
  const StageTimer timer(Stage::kElementwise, m.device);
  const double eps = m.config.rms_norm_eps;
  if (!use_kernels(m)) {
    const cuda::Kernels* k = cuda::kernels(x);
    if (k != nullptr && k->rms_norm(y, rstd, x, w, eps, /*again=*/false)) return;
    const at::Tensor wide = x.to(at::kFloat);
    rstd.copy_(wide.square().mean(-1).add_(eps).rsqrt_());
    y.copy_(wide * rstd.unsqueeze(-1) * w);
    return;
  }
  const at::Tensor w32 = w.to(at::kFloat);
  const float* weight = w32.const_data_ptr<float>();
  float* r = rstd.mutable_data_ptr<float>();
  by_type(x, [&]<class X>(X) {
    const Rows<X> in(x), out(y);
    at::parallel_for(0, in.rows, grain(in.heads * in.n), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) {
        for (int64_t h = 0; h < in.heads; h++) {
          r[t * in.heads + h] = kernel::rms_norm(out.at(t, h), in.at(t, h), weight, in.n, static_cast<float>(eps));
        }
      }
    });
  });
}

void rms_norm_again(const af_model& m, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y,
                    const at::Tensor& rstd) {
  const StageTimer timer(Stage::kElementwise, m.device);
  if (!use_kernels(m)) {
    const cuda::Kernels* k = cuda::kernels(x);
    if (k != nullptr && k->rms_norm(y, rstd, x, w, m.config.rms_norm_eps, /*again=*/true)) return;
    y.copy_(x * rstd.unsqueeze(-1) * w);
    return;
  }
  const at::Tensor w32 = w.to(at::kFloat);
  const float *weight = w32.const_data_ptr<float>(), *r = rstd.const_data_ptr<float>();
  by_type(x, [&]<class X>(X) {
    const Rows<X> in(x), out(y);
    at::parallel_for(0, in.rows, grain(in.heads * in.n), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) {
        for (int64_t h = 0; h < in.heads; h++) {
          kernel::scale_norm(out.at(t, h), in.at(t, h), weight, r[t * in.heads + h], in.n);
        }
      }
    });
  });
}

void rms_norm_backward(const af_model& m, const at::Tensor& dx, const at::Tensor& dw, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& w, const at::Tensor& rstd) {
  const StageTimer timer(Stage::kElementwise, m.device);
  if (!use_kernels(m)) {
    const cuda::Kernels* k = cuda::kernels(x);
    if (k != nullptr && k->rms_norm_backward(dx, dw, dy, x, w, rstd)) return;
    const at::Tensor normed = x * rstd.unsqueeze(-1), g = dy.to(at::kFloat) * w;  // float32, as rstd is
    // Named as a list of indices: of a bare {0, 1}, torch before 2.13 cannot choose between indices and names.
    if (dw.defined()) dw.add_((dy * normed).sum(at::IntArrayRef{0, 1}));
    dx.add_((g - normed * (g * normed).mean(-1, true)) * rstd.unsqueeze(-1));
    return;
  }
  const at::Tensor w32 = w.to(at::kFloat);
  const float *weight = w32.const_data_ptr<float>(), *r = rstd.const_data_ptr<float>();
  at::Tensor partial = at::zeros({kParts, w.size(0)}, at::kFloat);
  float* p = partial.mutable_data_ptr<float>();
  by_type(x, [&]<class X>(X) {
    const Rows<X> gx(dx), gy(dy), in(x);
    at::parallel_for(0, kParts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; part++) {
        for (int64_t t = in.rows * part / kParts; t < in.rows * (part + 1) / kParts; t++) {
          for (int64_t h = 0; h < in.heads; h++) {
            kernel::rms_norm_backward(gx.at(t, h), p + part * in.n, gy.at(t, h), in.at(t, h), weight,
                                      r[t * in.heads + h], in.n);
          }
        }
      }
    });
  });
  if (!dw.defined()) return;
  for (int64_t part = 0; part < kParts; part++) {
    kernel::add(dw.mutable_data_ptr<float>(), p + part * w.size(0), w.size(0));
  }
}

void rope(const af_model& m, const Plan& plan, const at::Tensor& qkv, int64_t heads, int direction) {
  const StageTimer timer(Stage::kElementwise, m.device);
  const int64_t E = m.config.head_dim;
  if (!use_kernels(m)) {
    const cuda::Kernels* k = cuda::kernels(qkv);
    if (k != nullptr && k->rope(qkv, plan.cos_T, plan.sin_T, heads, direction)) return;
    const at::Tensor x = qkv.narrow(1, 0, heads * E).view({plan.T, heads, E});
    const at::Tensor a = x.narrow(2, 0, E / 2), b = x.narrow(2, E / 2, E / 2);
    const at::Tensor cos = plan.cos_T.unsqueeze(1), sin = plan.sin_T.unsqueeze(1) * direction;
    const at::Tensor rotated = a * cos - b * sin;
    b.copy_(b * cos + a * sin);
    a.copy_(rotated);
    return;
  }
  const float *cos = plan.cos_T.const_data_ptr<float>(), *sin = plan.sin_T.const_data_ptr<float>();
  const int64_t stride = qkv.stride(0);
  by_type(qkv, [&]<class X>(X) {
    X* x = elements<X>(qkv);
    at::parallel_for(0, plan.T, grain(heads * E), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) {
        kernel::rope(x + t * stride, cos + t * (E / 2), sin + t * (E / 2), heads, E, static_cast<float>(direction));
      }
    });
  });
}

void swiglu(const af_model& m, const at::Tensor& act, const at::Tensor& gate_up) {
  const StageTimer timer(Stage::kElementwise, m.device);
  const int64_t T = act.size(0), F = act.size(1);
  if (!use_kernels(m)) {
    const cuda::Kernels* k = cuda::kernels(act);
    if (k != nullptr && k->swiglu(act, gate_up)) return;
    act.copy_(at::silu(gate_up.narrow(1, 0, F).to(at::kFloat)) * gate_up.narrow(1, F, F));
    return;
  }
  by_type(act, [&]<class X>(X) {
    X *out = elements<X>(act), *in = elements<X>(gate_up);
    at::parallel_for(0, T, grain(F), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) kernel::swiglu(out + t * F, in + t * 2 * F, F);
    });
  });
}

void swiglu_backward(const af_model& m, const at::Tensor& d_gate_up, const at::Tensor& act, const at::Tensor& gate_up,
                     const at::Tensor& d_act) {
  const StageTimer timer(Stage::kElementwise, m.device);
  const int64_t T = act.size(0), F = act.size(1);
  if (!use_kernels(m)) {
    const cuda::Kernels* k = cuda::kernels(act);
    if (k != nullptr && k->swiglu_backward(d_gate_up, act, gate_up, d_act)) return;
    const at::Tensor gate = gate_up.narrow(1, 0, F).to(at::kFloat), up = gate_up.narrow(1, F, F);
    const at::Tensor s = at::sigmoid(gate), silu = gate * s;
    act.copy_(silu * up);
    d_gate_up.narrow(1, 0, F).copy_(d_act.to(at::kFloat) * up * (s + silu * (1 - s)));
    d_gate_up.narrow(1, F, F).copy_(d_act * silu);
    return;
  }
  by_type(act, [&]<class X>(X) {
    X *dgu = elements<X>(d_gate_up), *a = elements<X>(act), *gu = elements<X>(gate_up), *da = elements<X>(d_act);
    at::parallel_for(0, T, grain(F), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) {
        kernel::swiglu_backward(dgu + t * 2 * F, a + t * F, gu + t * 2 * F, da + t * F, F);
      }
    });
  });
}

void add_rows(const af_model& m, const at::Tensor& y, const std::vector<int64_t>& index, const at::Tensor& index_N,
              const at::Tensor& x) {
  const StageTimer timer(Stage::kEmbedding, m.device);
  const at::Tensor x32 = x.to(at::kFloat);
  if (!use_kernels(m)) {
    y.index_put_({index_N}, x32, /*accumulate=*/true);  // sorts first on CUDA: one order there too, not on the CPU
    return;
  }
  const int64_t n = x.size(1);
  float* out = y.mutable_data_ptr<float>();
  const float* in = x32.const_data_ptr<float>();
  // Split by column, so that every thread adds rows in the same order.
  at::parallel_for(0, n, 64, [&](int64_t begin, int64_t end) {
    for (size_t i = 0; i < index.size(); i++) {
      kernel::add(out + index[i] * n + begin, in + static_cast<int64_t>(i) * n + begin, end - begin);
    }
  });
}

}  // namespace af
