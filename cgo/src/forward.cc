// The policy's forward and backward over a packed batch: logprobs and entropies of the rows, gradients of every
// parameter.
//
// The whole model is one autograd node. Its backward walks the layers with hand-written gradients and adds them to
// af_model.grad, so that autograd neither stores the layers' intermediates nor allocates the parameters' gradients.
//
//   x -> norm -> qkv -> (q/k norm) -> rope -> attention -> o -> + x = h -> norm -> gate, up -> silu(gate) up -> down ->
//   + h
//
// Where several ranks share the layers (plan.tensor, see share.h) O of the T tokens are this one's: norms and the
// residual stream are [O, D], what lies between the products of a layer [T, its share].
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "cuda/launch.h"
#include "exchange.h"
#include "profile.h"
#include "train.h"

namespace af {
namespace {

// What backward needs of one layer. Only input is kept when layers are recomputed.
struct LayerState {
  at::Tensor input_OD, rstd_O;
  at::Tensor qkv;            // [T, (H + 2K)E] rotated
  at::Tensor raw, raw_rstd;  // q/k norm only: q and k before it [T, (H + K)E], its rstd [T, H + K]
  at::Tensor attn, lse;      // [T, HE], [T, H]
  at::Tensor middle_OD, middle_rstd_O;
  at::Tensor gate_up;  // [T, 2F]
};

at::Tensor as_heads(const at::Tensor& x, int64_t first, int64_t heads,
                    int64_t n) {  // [T, *] -> [T, heads, n] from column first
  return x.narrow(1, first, heads * n).unflatten(1, {heads, n});
}
at::Tensor as_row(const at::Tensor& x) { return x.unsqueeze(1); }  // [T, n] -> [T, 1, n]

// y = x w^T + bias; terms of a sum over ranks are float32
void linear_out(const af_model& m, at::Tensor y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  if (as_engine(m)) return linear_as_engine(m, y, x, w, bias, false);
  if (!bias.defined()) return product_out(y, x, w.t());
  if (cuda::on_device(y) && y.scalar_type() == w.scalar_type()) {
    at::addmm_out(y, bias, x, w.t());  // one product, which adds the bias before it rounds
  } else if (y.scalar_type() == at::kFloat) {
    product_out(y, x, w.t());
    y.add_(bias);
  } else {
    y.copy_(product_wide(x, w.t()).add_(bias));
  }
}
// y += x w^T + bias
void linear_add(const af_model& m, const at::Tensor& y, const at::Tensor& x, const at::Tensor& w,
                const at::Tensor& bias) {
  if (as_engine(m)) return linear_as_engine(m, y, x, w, bias, true);
  product_add(y, x, w.t());
  if (bias.defined()) y.add_(bias);
}
// d w += dy^T x, d bias += sum of dy, where they are trained; with zero d w is known to be zeros, which need not be
// read
void linear_gradient(const at::Tensor& dw, const at::Tensor& dbias, const at::Tensor& dy, const at::Tensor& x,
                     bool zero) {
  if (dw.defined() && zero) product_out(dw, dy.t(), x);
  if (dw.defined() && !zero) product_add(dw, dy.t(), x);
  if (dbias.defined()) dbias.add_(dy.sum(0, false, at::kFloat));
}

at::Tensor copy(const af_model& m, const at::Tensor& x) {
  at::Tensor y = m.activation(x.sizes());
  return y.copy_(x);
}

struct Sizes {  // of what this process computes
  Sizes(const af_model& m, const Plan& plan)
      : T(plan.T),
        O(plan.O),
        D(m.config.hidden_size),
        F(plan.share.columns.length),
        H(plan.share.heads.length),
        K(plan.share.kv_heads.length),
        E(m.config.head_dim) {}
  int64_t T, O, D, F, H, K, E;
};

// ---- projections: x [T, in], y [T, rows] ----

void project(const af_model& m, const Projections& p, const at::Tensor& y, const at::Tensor& x) {
  int64_t column = 0;
  for (const Projections::Matrix& w : p.parts) {
    linear_out(m, y.narrow(1, column, w.rows), x, w.weight, w.bias);
    column += w.rows;
  }
  low_rank(m, p.adapter, y, x);
}

// dx = dy W and the adapter's share; returns d u for project_gradient.
at::Tensor project_backward(const af_model& m, const Projections& p, const at::Tensor& dx, const at::Tensor& dy) {
  int64_t column = 0;
  for (const Projections::Matrix& w : p.parts) {
    const at::Tensor d = dy.narrow(1, column, w.rows);
    if (column == 0) {
      product_out(dx, d, w.weight);
    } else {
      product_add(dx, d, w.weight);
    }
    column += w.rows;
  }
  return low_rank_backward(m, p.adapter, dy, dx);
}

// g +=; with zero its matrices are known to be zeros
void project_gradient(const af_model& m, const Projections& p, const Projections& g, const at::Tensor& dy,
                      const at::Tensor& x, const at::Tensor& du, bool zero) {
  int64_t column = 0;
  for (const Projections::Matrix& w : g.parts) {
    linear_gradient(w.weight, w.bias, dy.narrow(1, column, w.rows), x, zero);
    column += w.rows;
  }
  low_rank_gradient(m, p.adapter, g.adapter, dy, x, du);
}

// The tokens [T, n] that this process's share of a layer reads, of its own x [O, n].
at::Tensor all_tokens(const af_model& m, const Plan& plan, const at::Tensor& x) {
  return plan.tensor ? plan.tensor->gather(m, x) : x;
}

// For its own tokens [O, n] the sum over the ranks of what their shares make of all tokens, terms [T, n].
at::Tensor own_tokens(const af_model& m, const Plan& plan, const at::Tensor& terms) {
  return plan.tensor ? plan.tensor->sum(m, terms).to(m.dtype) : terms;
}

// y [O, D] += the projection of x [T, in], of which every rank has its columns.
void project_add(const af_model& m, const Plan& plan, const Projections& p, const at::Tensor& y, const at::Tensor& x) {
  if (plan.tensor == nullptr) {
    const Projections::Matrix& w = p.parts[0];
    linear_add(m, y, x, w.weight, w.bias);
    low_rank(m, p.adapter, y, x);
    return;
  }
  const at::Tensor terms = m.scratch({plan.T, y.size(1)});
  project(m, p, terms, x);
  y.add_(plan.tensor->sum(m, terms));
}

// Buffers that every layer uses anew.
struct Workspace {
  Workspace(const af_model& m, const Plan& plan, bool backward) {
    const Sizes s(m, plan);
    auto make = [&](int64_t n) { return m.activation({s.T, n}); };
    normed = m.activation({s.O, s.D});
    act = make(s.F);
    if (!backward) return;
    d_act = make(s.F);
    d_gate_up = make(2 * s.F);
    d_normed = plan.tensor ? m.scratch({s.T, s.D}) : make(s.D);  // terms of a sum are float32
    d_attn = make(s.H * s.E);
    d_qkv = make((s.H + 2 * s.K) * s.E);
  }
  at::Tensor normed, act, d_act, d_gate_up, d_normed, d_attn, d_qkv;
  bool zero = false;  // the gradients were zeros before this backward
};

// Fills s, the state of layer i, from s.input, and w.normed. Without keep the state is not one that backward can use:
// the residual stream and q and k before their norms are overwritten.
void fill_state(const af_model& m, const LayerShare& l, const Plan& plan, int64_t i, bool keep, Workspace& w,
                LayerState& s) {
  const Sizes z(m, plan);
  s.rstd_O = m.scratch({z.O, 1});
  rms_norm(m, as_row(s.input_OD), l.input_norm_D, as_row(w.normed), s.rstd_O);
  s.qkv = m.activation({z.T, (z.H + 2 * z.K) * z.E});
  project(m, l.qkv, s.qkv, all_tokens(m, plan, w.normed));
  if (m.config.qk_norm) {
    s.raw = s.qkv.narrow(1, 0, (z.H + z.K) * z.E);
    if (keep) s.raw = copy(m, s.raw);
    s.raw_rstd = m.scratch({z.H + z.K, z.T});
    const at::Tensor q_rstd = s.raw_rstd.narrow(0, 0, z.H).view({z.T, z.H}),
                     k_rstd = s.raw_rstd.narrow(0, z.H, z.K).view({z.T, z.K});
    rms_norm(m, as_heads(s.raw, 0, z.H, z.E), l.q_norm_E, as_heads(s.qkv, 0, z.H, z.E), q_rstd);
    rms_norm(m, as_heads(s.raw, z.H * z.E, z.K, z.E), l.k_norm_E, as_heads(s.qkv, z.H * z.E, z.K, z.E), k_rstd);
  }
  rope(m, plan, s.qkv, z.H + z.K, 1);
  s.attn = m.activation({z.T, z.H * z.E});
  if (plan.cached != nullptr) {
    plan.cached->attend(i, s.qkv, s.attn);
  } else {
    s.lse = m.scratch({z.T, z.H});
    attention(m, plan, s.qkv, s.attn, s.lse);
  }
  s.middle_OD = keep ? copy(m, s.input_OD) : s.input_OD;
  project_add(m, plan, l.o, s.middle_OD, s.attn);
  s.middle_rstd_O = m.scratch({z.O, 1});
  rms_norm(m, as_row(s.middle_OD), l.post_norm_D, as_row(w.normed), s.middle_rstd_O);
  s.gate_up = m.activation({z.T, 2 * z.F});
  project(m, l.gate_up, s.gate_up, all_tokens(m, plan, w.normed));
}

// The same, and returns the layer's output [O, D].
at::Tensor layer_forward(const af_model& m, const LayerShare& l, const Plan& plan, int64_t i, bool keep, Workspace& w,
                         LayerState& s) {
  fill_state(m, l, plan, i, keep, w, s);
  swiglu(m, w.act, s.gate_up);
  at::Tensor y = keep ? copy(m, s.middle_OD) : s.middle_OD;
  project_add(m, plan, l.down, y, w.act);
  return y;
}

// dx [O, D]: gradient of the layer's output, becomes that of its input.
void layer_backward(const af_model& m, const LayerShare& l, const LayerShare& g, const Plan& plan, Workspace& w,
                    const LayerState& s, const at::Tensor& dx) {
  const Sizes z(m, plan);
  {
    const at::Tensor dy = all_tokens(m, plan, dx);
    const at::Tensor du = project_backward(m, l.down, w.d_act, dy);
    swiglu_backward(m, w.d_gate_up, w.act, s.gate_up, w.d_act);
    project_gradient(m, l.down, g.down, dy, w.act, du, w.zero);
  }
  rms_norm_again(m, as_row(s.middle_OD), l.post_norm_D, as_row(w.normed), s.middle_rstd_O);
  project_gradient(m, l.gate_up, g.gate_up, w.d_gate_up, all_tokens(m, plan, w.normed),
                   project_backward(m, l.gate_up, w.d_normed, w.d_gate_up), w.zero);
  rms_norm_backward(m, as_row(dx), g.post_norm_D, as_row(own_tokens(m, plan, w.d_normed)), as_row(s.middle_OD),
                    l.post_norm_D, s.middle_rstd_O);
  {
    const at::Tensor dy = all_tokens(m, plan, dx);
    project_gradient(m, l.o, g.o, dy, s.attn, project_backward(m, l.o, w.d_attn, dy), w.zero);
  }
  attention_backward(m, plan, s.qkv, s.attn, s.lse, w.d_attn, w.d_qkv);
  rope(m, plan, w.d_qkv, z.H + z.K, -1);
  if (m.config.qk_norm) {
    const at::Tensor d_raw = m.activation(s.raw.sizes()).zero_();
    const at::Tensor q_rstd = s.raw_rstd.narrow(0, 0, z.H).view({z.T, z.H}),
                     k_rstd = s.raw_rstd.narrow(0, z.H, z.K).view({z.T, z.K});
    const int64_t k = z.H * z.E;
    rms_norm_backward(m, as_heads(d_raw, 0, z.H, z.E), g.q_norm_E, as_heads(w.d_qkv, 0, z.H, z.E),
                      as_heads(s.raw, 0, z.H, z.E), l.q_norm_E, q_rstd);
    rms_norm_backward(m, as_heads(d_raw, k, z.K, z.E), g.k_norm_E, as_heads(w.d_qkv, k, z.K, z.E),
                      as_heads(s.raw, k, z.K, z.E), l.k_norm_E, k_rstd);
    w.d_qkv.narrow(1, 0, (z.H + z.K) * z.E).copy_(d_raw);
  }
  rms_norm_again(m, as_row(s.input_OD), l.input_norm_D, as_row(w.normed), s.rstd_O);
  project_gradient(m, l.qkv, g.qkv, w.d_qkv, all_tokens(m, plan, w.normed),
                   project_backward(m, l.qkv, w.d_normed, w.d_qkv), w.zero);
  rms_norm_backward(m, as_row(dx), g.input_norm_D, as_row(own_tokens(m, plan, w.d_normed)), as_row(s.input_OD),
                    l.input_norm_D, s.rstd_O);
}

// The rows of a batch, equal ones once: leaves of a tree, and sequences of a group that are alike up to a token, ask
// for the same prediction. The head computes each once, and sums its gradients, in the order of the batch.
class DistinctRows {
 public:
  DistinctRows() = default;
  DistinctRows(const af_model& m, const af_batch& b) {
    check_sizes(b);
    std::vector<int64_t> last(static_cast<size_t>(b.num_tokens), -1), before;  // distinct rows of one token, linked
    for (int64_t i = 0; i < b.num_rows; i++) {
      const int32_t token = b.row_token[i], target = b.row_target[i];
      if (token < 0 || token >= b.num_tokens)
        throw InputError("batch: row_token[" + std::to_string(i) + "] is " + std::to_string(token) +
                         ", allowed are 0 to " + std::to_string(b.num_tokens - 1));
      int64_t& newest = last[static_cast<size_t>(token)];
      int64_t same = newest;
      while (same >= 0 && target_[static_cast<size_t>(same)] != target) same = before[static_cast<size_t>(same)];
      if (same < 0) {
        same = static_cast<int64_t>(token_.size());
        before.push_back(newest);
        newest = same;
        token_.push_back(token);
        target_.push_back(target);
      }
      index_.push_back(same);
    }
    if (token_.size() < index_.size())
      index_N_ = to_device(m, index_);
    else
      index_.clear();
  }

  // b with these rows, which must outlive it.
  af_batch of(af_batch b) const {
    b.num_rows = static_cast<int64_t>(token_.size());
    b.row_token = token_.data();
    b.row_target = target_.data();
    return b;
  }
  // values of the distinct rows -> [N] of the batch's
  at::Tensor spread(const at::Tensor& values) const {
    return index_.empty() ? values : values.index_select(0, index_N_);
  }
  // gradients [N] of the batch's rows -> of the distinct ones; undefined stays undefined
  at::Tensor sum(const af_model& m, const at::Tensor& d) const {
    if (index_.empty() || !d.defined()) return d;
    const at::Tensor out = m.scratch({static_cast<int64_t>(token_.size()), 1}).zero_();
    add_rows(m, out, index_, index_N_, d.contiguous().unsqueeze(1));
    return out.squeeze(1);
  }

 private:
  std::vector<int32_t> token_, target_;
  std::vector<int64_t> index_;  // [N] which of them a row of the batch is; empty where none is there twice
  at::Tensor index_N_;          // the same on the device
};

// One forward, kept for its backward.
struct ForwardState : torch::CustomClassHolder {
  std::shared_ptr<af_model> model;
  uint64_t version = 0;
  bool keep = false, values = false, adapter = false;
  int64_t checkpoint = 0;  // layers computed again: the first, as the states of the others are gone by then
  DistinctRows rows;
  Plan plan;  // of the distinct rows
  std::vector<LayerState> layers;
  at::Tensor rows_ND, rows_rstd_N, hidden_ND;  // rows of the last layer's output, and normed
  HeadResult result;
  at::Tensor value_N;
};

// Before a part of the parameters is read: it may still be on its way from the other ranks.
void need(const af_model& m, int64_t part) {
  if (m.exchange) m.exchange->need(part);
}

// Behind the last addition of a backward to the gradients of a part.
void added(const af_model& m, int64_t part) {
  if (m.exchange) m.exchange->added(part, m.grad.flat);
}

// This process's share of layer i of p, without adapters where the forward leaves them out.
LayerShare layer_of(const ForwardState& f, const Parameters& p, int64_t i) {
  static const LayerAdapters none;
  return layer_share(f.model->config, f.plan.share, p.layers[i], f.adapter ? p.adapters[i] : none);
}

// Fills all of f but what the heads make of its hidden states. A plan without rows has none.
void run_layers(ForwardState& f) {
  const Parameters& p = f.model->weights();
  const af_model& m = *f.model;
  m.pool->begin_step();
  Workspace w(m, f.plan, false);
  at::Tensor x_OD = m.activation({f.plan.O, m.config.hidden_size});
  need(m, part_embed);
  {
    const StageTimer timer(Stage::kEmbedding, m.device);
    at::index_select_out(x_OD, p.embed_VD, 0, f.plan.tokens_O);
  }
  for (int64_t i = 0; i < m.config.num_layers; i++) {
    LayerState s;
    s.input_OD = x_OD;
    need(m, part_layer(i));
    x_OD = layer_forward(m, layer_of(f, p, i), f.plan, i, f.keep, w, s);
    if (!f.keep) continue;
    if (i < f.checkpoint) {
      LayerState input;
      input.input_OD = s.input_OD;
      s = std::move(input);
    }
    f.layers.push_back(std::move(s));
  }
  if (f.plan.N == 0) return;
  f.rows_ND = x_OD.index_select(0, f.plan.row_token_N);
  f.rows_rstd_N = m.scratch({f.plan.N, 1});
  need(m, part_head(m.config.num_layers));
  f.hidden_ND = at::empty_like(f.rows_ND);
  rms_norm(m, as_row(f.rows_ND), p.norm_D, as_row(f.hidden_ND), f.rows_rstd_N);
}

void run_forward(ForwardState& f) {
  run_layers(f);
  const af_model& m = *f.model;
  f.result = head(m, f.model->weights().head_VD, f.plan, f.hidden_ND);
  need(m, part_value(m.config.num_layers));
  if (f.values) f.value_N = value_head(m, f.hidden_ND);
}

void run_backward(ForwardState& f, const at::Tensor& d_logprob, const at::Tensor& d_entropy,
                  const at::Tensor& d_value) {
  af_model& m = *f.model;
  if (f.version != m.version) throw InputError("parameters changed since the forward; run the forward again");
  if (m.exchange) m.exchange->begin_backward();
  if (!m.grad.flat.defined()) m.grad = m.zeros(), m.grad_is_zero = true;
  // Of several ranks each holds ranges that others add to. On the CPU the first product would get other bits.
  const bool zero = m.grad_is_zero && !m.exchange && cuda::on_device(m.grad.flat);
  m.grad_is_zero = false;
  const Parameters& p = m.weights();
  const int64_t layers = m.config.num_layers;
  const at::Tensor d_hidden = head_backward(m, p.head_VD, f.plan, f.hidden_ND, f.result, d_logprob, d_entropy);
  if (d_value.defined()) value_head_backward(m, f.hidden_ND, d_value, d_hidden);
  added(m, part_value(layers));
  const at::Tensor d_rows = at::zeros_like(d_hidden);
  rms_norm_backward(m, as_row(d_rows), m.grad.norm_D, as_row(d_hidden), as_row(f.rows_ND.to(at::kFloat)), p.norm_D,
                    f.rows_rstd_N);
  added(m, part_head(layers));
  at::Tensor dx_OD = m.scratch({f.plan.O, m.config.hidden_size}).zero_();
  add_rows(m, dx_OD, f.plan.row_token, f.plan.row_token_N, d_rows);
  dx_OD = dx_OD.to(m.dtype);
  Workspace w(m, f.plan, true);
  w.zero = zero;
  for (int64_t i = layers - 1; i >= 0; i--) {
    LayerState s = std::move(f.layers[i]);  // freed when this layer is done
    const LayerShare l = layer_of(f, p, i);
    if (i < f.checkpoint) fill_state(m, l, f.plan, i, /*keep=*/true, w, s);
    layer_backward(m, l, layer_of(f, m.grad, i), f.plan, w, s, dx_OD);
    added(m, part_layer(i));
  }
  if (m.grad.embed_VD.defined()) add_rows(m, m.grad.embed_VD, f.plan.tokens, f.plan.tokens_O, dx_OD);
  added(m, part_embed);
}

// The outputs of the batch's rows, [N] each: logprob, entropy and, where they were asked for, values.
torch::autograd::variable_list outputs(const ForwardState& f) {
  torch::autograd::variable_list own{f.result.logprob_N, f.result.entropy_N};
  if (f.values) own.push_back(f.value_N);
  for (const auto& ranks : {f.plan.tensor, f.plan.context}) {
    if (ranks) own = ranks->gather_rows(*f.model, at::stack(own, 1)).t().contiguous().unbind(0);
  }
  for (at::Tensor& t : own) t = f.rows.spread(t);
  return own;
}

// Of gradients [N] those of the rows that this process computes; undefined stays undefined.
at::Tensor own_rows(const ForwardState& f, const at::Tensor& d) {
  at::Tensor own = f.rows.sum(*f.model, d);
  for (const auto& ranks : {f.plan.context, f.plan.tensor}) {
    if (ranks && own.defined()) own = ranks->own_rows(own);
  }
  return own;
}

struct PolicyForward : torch::autograd::Function<PolicyForward> {
  // anchor requires a gradient, which makes the outputs do; it gets none.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& anchor,
                                                const c10::intrusive_ptr<ForwardState>& state) {
    (void)anchor;
    run_forward(*state);
    ctx->saved_data["state"] = c10::IValue::make_capsule(state);
    ctx->set_materialize_grads(false);
    torch::autograd::variable_list out = outputs(*state);
    for (at::Tensor& t : out) t = t.clone();
    return out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    at::NoGradGuard no_grad;
    auto saved = ctx->saved_data.find("state");
    if (saved == ctx->saved_data.end()) throw InputError("this forward was already used by a backward; run it again");
    auto state = c10::static_intrusive_pointer_cast<ForwardState>(saved->second.toCapsule());
    ctx->saved_data.clear();
    const at::Tensor d_value = state->values ? grads[2] : at::Tensor();
    if (grads[0].defined() || grads[1].defined() || d_value.defined())
      run_backward(*state, own_rows(*state, grads[0]), own_rows(*state, grads[1]), own_rows(*state, d_value));
    return {at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor plan_logits(af_model& m, const Plan& plan) {
  const auto f = c10::make_intrusive<ForwardState>();
  f->model = m.shared_from_this();
  f->adapter = !m.adapters.empty();
  f->plan = plan;
  run_layers(*f);
  return plan.N == 0 ? at::Tensor() : logits(f->hidden_ND, m.weights().head_VD);
}

}  // namespace af

extern "C" af_error* af_model_forward(af_model* m, const af_batch* b, const af_forward_options* o, af_outputs* out) {
  return af::guard([&] {
    *out = {};
    if (o->values != 0 && !m->layout.value_head)
      throw af::InputError("values need a value head, which the model has not; add one first");
    auto state = c10::make_intrusive<af::ForwardState>();
    state->model = m->shared_from_this();
    state->version = m->version;
    const auto group = [](const af_group* g) { return g == nullptr ? nullptr : g->group; };
    state->rows = af::DistinctRows(*m, *b);
    state->plan = af::make_plan(*m, state->rows.of(*b), {group(o->context), group(o->tensor)});
    state->keep = o->grad != 0;
    state->checkpoint = o->checkpoint;
    state->values = o->values != 0;
    state->adapter = m->layout.rank > 0 && m->adapter_on;
    torch::autograd::variable_list result;
    if (o->grad != 0) {
      at::AutoGradMode mode(true);
      result = af::PolicyForward::apply(at::zeros({1}, at::TensorOptions(m->device)).requires_grad_(), state);
    } else {
      at::NoGradGuard mode;
      af::run_forward(*state);
      result = af::outputs(*state);
    }
    out->logprobs = af::new_handle(result[0]);
    if (o->entropy != 0) out->entropy = af::new_handle(result[1]);
    if (o->values != 0) out->values = af::new_handle(result[2]);
  });
}
