// The head: log-probability of each row's target and entropy of its distribution, in tiles of rows x vocabulary, so
// that the logits of all rows never exist at once. Backward recomputes each tile.
//
// The logits are float32 from their product on, also where the model computes in bfloat16, which keeps steps of 1/8 to
// 1/4 of a logit near 40.
//
//   z = logits / temperature, logprob = z[target] - lse(z), entropy = lse(z) - sum(softmax(z) * z)
//   d logprob / d z_j = [j = target] - p_j,  d entropy / d z_j = -p_j (log p_j + entropy)
#include <ATen/Parallel.h>

#include "cuda/launch.h"
#include "profile.h"
#include "train.h"

namespace af {
namespace {

constexpr int64_t kRows = 4096;           // most rows of a tile
constexpr int64_t kLeastColumns = 256;    // of a tile, where the vocabulary has as many
constexpr int64_t kTileFloats = 4 << 20;  // most elements of a tile, about: 16 MiB

// A power of two: products of few sizes.
int64_t tile_columns(int64_t rows, int64_t V) {
  int64_t columns = kLeastColumns;
  while (2 * columns * rows <= kTileFloats) columns *= 2;
  return std::min(V, columns);
}

// ---- devices other than the CPU: chunks of whole rows ----

constexpr int64_t kChunk = 256;  // rows of the ATen expressions, whose tensors are several
constexpr int64_t kKernelFloats = 5 << 26, kLeastRows = 256, kMostRows = 8192;  // of the kernels, whose is one: 1.3 GB

// A multiple of 256: 2,048 rows of 152,000 logits.
int64_t chunk_rows(const cuda::Kernels* kernels, int64_t V) {
  if (kernels == nullptr) return kChunk;
  return std::clamp(kKernelFloats / V / kLeastRows * kLeastRows, kLeastRows, kMostRows);
}

HeadResult head_generic(const Plan& plan, const at::Tensor& hidden, const at::Tensor& weight) {
  const auto options = hidden.options().dtype(at::kFloat);
  HeadResult r{at::empty({plan.N}, options), at::empty({plan.N}, options), at::empty({plan.N}, options)};
  const cuda::Kernels* kernels = cuda::kernels(hidden);
  const int64_t chunk = chunk_rows(kernels, weight.size(0));
  for (int64_t start = 0; start < plan.N; start += chunk) {
    const int64_t n = std::min(chunk, plan.N - start);
    const auto rows = [&](const at::Tensor& t) { return t.narrow(0, start, n); };
    const at::Tensor z = logits(rows(hidden), weight);
    if (kernels != nullptr && kernels->head_forward(z, rows(plan.row_target_N), plan.logit_scale, rows(r.logprob_N),
                                                    rows(r.entropy_N), rows(r.lse_N)))
      continue;
    z.mul_(plan.logit_scale);
    const at::Tensor lse = at::logsumexp(z, {1});
    const at::Tensor logp = z - lse.unsqueeze(1);
    rows(r.lse_N).copy_(lse);
    rows(r.logprob_N).copy_(logp.gather(1, rows(plan.row_target_N).unsqueeze(1)).squeeze(1));
    rows(r.entropy_N).copy_(-(at::exp(logp) * logp).sum(1));
  }
  return r;
}

// The gradient of z [n, V], the logits of rows start on, in type; z is lost.
at::Tensor chunk_gradient(const cuda::Kernels* kernels, const Plan& plan, const HeadResult& f,
                          const at::Tensor& d_logprob, const at::Tensor& d_entropy, int64_t start, const at::Tensor& z,
                          at::ScalarType type) {
  const auto rows = [&](const at::Tensor& t) { return t.narrow(0, start, z.size(0)); };
  if (kernels != nullptr) {
    const at::Tensor d = kernels->head_backward(z, rows(plan.row_target_N), rows(f.lse_N), rows(f.entropy_N),
                                                rows(d_logprob), rows(d_entropy), plan.logit_scale, type);
    if (d.defined()) return d;
  }
  const auto column = [&](const at::Tensor& t) { return rows(t).unsqueeze(1); };
  const at::Tensor logp = z.mul_(plan.logit_scale).sub_(column(f.lse_N));
  const at::Tensor d = at::exp(logp).neg_().mul_(column(d_logprob) + column(d_entropy) * (logp + column(f.entropy_N)));
  d.scatter_add_(1, column(plan.row_target_N), column(d_logprob)).mul_(plan.logit_scale);
  const at::Tensor silent = column(d_logprob).eq(0).logical_and_(column(d_entropy).eq(0));
  return d.masked_fill_(silent, 0).to(type);  // a row without gradient stays without, NaN or not
}

at::Tensor backward_generic(const Plan& plan, const at::Tensor& hidden, const at::Tensor& weight, const HeadResult& f,
                            const at::Tensor& d_logprob, const at::Tensor& d_entropy, const at::Tensor& d_weight) {
  at::Tensor d_hidden = at::empty(hidden.sizes(), hidden.options().dtype(at::kFloat));
  const cuda::Kernels* kernels = cuda::kernels(hidden);
  const int64_t chunk = chunk_rows(kernels, weight.size(0));
  // The products take bfloat16 factors on CUDA; the CPU's rounds what it multiplies by itself.
  const at::ScalarType type = cuda::on_device(hidden) ? weight.scalar_type() : at::kFloat;
  for (int64_t start = 0; start < plan.N; start += chunk) {
    const at::Tensor h = hidden.narrow(0, start, std::min(chunk, plan.N - start));
    const at::Tensor d = chunk_gradient(kernels, plan, f, d_logprob, d_entropy, start, logits(h, weight), type);
    product_out(d_hidden.narrow(0, start, h.size(0)), d, weight);
    if (d_weight.defined()) product_add(d_weight, d.t(), h);
  }
  return d_hidden;
}

// ---- the CPU: tiles ----

void forward_rows(const af_model& m, const at::Tensor& weight, const Plan& plan, const at::Tensor& hidden,
                  int64_t start, int64_t n, HeadResult& r) {
  const int64_t V = weight.size(0), columns = tile_columns(n, V);
  const float scale = static_cast<float>(plan.logit_scale);
  const at::Tensor h = hidden.narrow(0, start, n);
  at::Tensor buffer = m.scratch({n * columns});
  std::vector<kernel::HeadState> states(n);
  std::vector<float> target_z(n);
  for (int64_t v = 0; v < V; v += columns) {
    const int64_t width = std::min(columns, V - v);
    at::Tensor tile = buffer.narrow(0, 0, n * width).view({n, width});
    logits_out(m, tile, h, weight.narrow(0, v, width));
    const float* logits = elements<float>(tile);
    at::parallel_for(0, n, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        kernel::head_update(states[i], logits + i * width, width, scale);
        const int64_t target = plan.row_target[start + i] - v;
        if (target >= 0 && target < width) target_z[i] = logits[i * width + target] * scale;
      }
    });
  }
  float *logprob = r.logprob_N.mutable_data_ptr<float>(), *entropy = r.entropy_N.mutable_data_ptr<float>();
  float* lse = r.lse_N.mutable_data_ptr<float>();
  for (int64_t i = 0; i < n; i++) {
    const double log_sum = std::log(states[i].sum), l = states[i].max + log_sum;
    lse[start + i] = static_cast<float>(l);
    logprob[start + i] = static_cast<float>(target_z[i] - l);
    entropy[start + i] = static_cast<float>(log_sum - states[i].dot / states[i].sum);
  }
}

// The rows of a backward that have a gradient.
struct Active {
  std::vector<int64_t> row;  // index among N
  std::vector<float> d_logprob, d_entropy, lse, entropy;
  at::Tensor row_index;
};

Active active_rows(const Plan& plan, const HeadResult& f, const at::Tensor& d_logprob, const at::Tensor& d_entropy) {
  const float *dl = d_logprob.const_data_ptr<float>(), *de = d_entropy.const_data_ptr<float>();
  const float *lse = f.lse_N.const_data_ptr<float>(), *entropy = f.entropy_N.const_data_ptr<float>();
  Active a;
  for (int64_t i = 0; i < plan.N; i++) {
    if (dl[i] == 0 && de[i] == 0) continue;  // a row without gradient stays without, NaN or not
    a.row.push_back(i);
    a.d_logprob.push_back(dl[i]);
    a.d_entropy.push_back(de[i]);
    a.lse.push_back(lse[i]);
    a.entropy.push_back(entropy[i]);
  }
  a.row_index = at::from_blob(a.row.data(), {static_cast<int64_t>(a.row.size())}, at::kLong).clone();
  return a;
}

void backward_rows(const af_model& m, const at::Tensor& weight, const Plan& plan, const Active& a, const at::Tensor& h,
                   int64_t start, const at::Tensor& d_h) {
  const at::Tensor& d_weight = m.grad.head_VD;
  const int64_t n = h.size(0), V = weight.size(0), columns = tile_columns(n, V);
  const float scale = static_cast<float>(plan.logit_scale);
  at::Tensor buffer = m.scratch({n * columns});
  for (int64_t v = 0; v < V; v += columns) {
    const int64_t width = std::min(columns, V - v);
    at::Tensor tile = buffer.narrow(0, 0, n * width).view({n, width});
    const at::Tensor w = weight.narrow(0, v, width);
    logits_out(m, tile, h, w);
    float* logits = elements<float>(tile);
    at::parallel_for(0, n, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t k = start + i, target = plan.row_target[a.row[k]] - v;
        kernel::head_backward(logits + i * width, width, scale, a.lse[k], a.entropy[k], a.d_logprob[k], a.d_entropy[k]);
        if (target >= 0 && target < width) logits[i * width + target] += scale * a.d_logprob[k];
      }
    });
    product_add(d_h, tile, w);
    if (d_weight.defined()) product_add(d_weight.narrow(0, v, width), tile.t(), h);
  }
}

}  // namespace

at::Tensor logits(const at::Tensor& hidden, const at::Tensor& weight) {
  at::Tensor z = at::empty({hidden.size(0), weight.size(0)}, hidden.options().dtype(at::kFloat));
  product_out(z, hidden, weight.t());
  return z;
}

HeadResult head(const af_model& m, const at::Tensor& weight_VD, const Plan& plan, const at::Tensor& hidden_ND) {
  const StageTimer timer(Stage::kHead, m.device);
  if (!use_kernels(m)) return head_generic(plan, hidden_ND, weight_VD);
  const auto options = hidden_ND.options().dtype(at::kFloat);
  HeadResult r{at::empty({plan.N}, options), at::empty({plan.N}, options), at::empty({plan.N}, options)};
  for (int64_t start = 0; start < plan.N; start += kRows) {
    const int64_t n = std::min(kRows, plan.N - start);
    forward_rows(m, weight_VD, plan, hidden_ND, start, n, r);
  }
  return r;
}

at::Tensor head_backward(af_model& m, const at::Tensor& weight_VD, const Plan& plan, const at::Tensor& hidden_ND,
                         const HeadResult& forward, const at::Tensor& d_logprob, const at::Tensor& d_entropy) {
  const StageTimer timer(Stage::kHead, m.device);
  const auto options = hidden_ND.options().dtype(at::kFloat);
  auto or_zeros = [&](const at::Tensor& t) {
    return t.defined() ? t.to(options).contiguous() : at::zeros({plan.N}, options);
  };
  const at::Tensor dl = or_zeros(d_logprob), de = or_zeros(d_entropy);
  if (!use_kernels(m)) return backward_generic(plan, hidden_ND, weight_VD, forward, dl, de, m.grad.head_VD);
  const Active a = active_rows(plan, forward, dl, de);
  const int64_t n = static_cast<int64_t>(a.row.size());
  const at::Tensor h = hidden_ND.index_select(0, a.row_index);
  const at::Tensor d_h = at::zeros(h.sizes(), options);
  for (int64_t start = 0; start < n; start += kRows) {
    const int64_t rows = std::min(kRows, n - start);
    backward_rows(m, weight_VD, plan, a, h.narrow(0, start, rows), start, d_h.narrow(0, start, rows));
  }
  return at::zeros(hidden_ND.sizes(), options).index_copy_(0, a.row_index, d_h);
}

at::Tensor value_head(const af_model& m, const at::Tensor& hidden_ND) {
  const StageTimer timer(Stage::kHead, m.device);
  if (!use_kernels(m)) return at::mv(hidden_ND.to(at::kFloat), m.value_weight_1D.view({-1})).add_(m.value_bias_1);
  const int64_t N = hidden_ND.size(0), D = hidden_ND.size(1);
  const at::Tensor hidden = hidden_ND.to(at::kFloat);
  at::Tensor value = at::empty({N}, hidden.options());
  float* out = value.mutable_data_ptr<float>();
  const float *h = hidden.const_data_ptr<float>(), *w = m.value_weight_1D.const_data_ptr<float>();
  const double bias = *m.value_bias_1.const_data_ptr<float>();
  at::parallel_for(0, N, std::max<int64_t>(1, 16384 / D), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) out[i] = static_cast<float>(kernel::dot(h + i * D, w, D) + bias);
  });
  return value;
}

void value_head_backward(af_model& m, const at::Tensor& hidden_ND, const at::Tensor& d_value,
                         const at::Tensor& d_hidden) {
  const StageTimer timer(Stage::kHead, m.device);
  const at::Tensor d = d_value.to(hidden_ND.options().dtype(at::kFloat)).contiguous();
  if (!use_kernels(m)) {
    const at::Tensor silent = d.eq(0).unsqueeze(1);
    d_hidden.add_((d.unsqueeze(1) * m.value_weight_1D).masked_fill_(silent, 0));
    m.grad.value_weight_1D.addmm_(d.unsqueeze(0), hidden_ND.to(at::kFloat).masked_fill(silent, 0));
    m.grad.value_bias_1.add_(d.sum());
    return;
  }
  const int64_t N = hidden_ND.size(0), D = hidden_ND.size(1);
  const at::Tensor hidden = hidden_ND.to(at::kFloat);
  const float *g = d.const_data_ptr<float>(), *h = hidden.const_data_ptr<float>();
  const float* w = m.value_weight_1D.const_data_ptr<float>();
  float *dh = d_hidden.mutable_data_ptr<float>(), *dw = m.grad.value_weight_1D.mutable_data_ptr<float>();
  at::parallel_for(0, D, 64, [&](int64_t begin, int64_t end) {  // by column: one order of additions
    for (int64_t i = 0; i < N; i++) {
      if (g[i] == 0) continue;
      for (int64_t c = begin; c < end; c++) {
        dh[i * D + c] += g[i] * w[c];
        dw[c] += g[i] * h[i * D + c];
      }
    }
  });
  double sum = 0;
  for (int64_t i = 0; i < N; i++) sum += g[i];
  *m.grad.value_bias_1.mutable_data_ptr<float>() += static_cast<float>(sum);
}

}  // namespace af
