// Causal attention over a forest of segments, grouped query heads. Where several ranks compute a batch, the queries are
// this rank's own and the keys those of all ranks.
//
// The queries of a block of tokens and of the G = H / K query heads that share a key/value head are the rows of one
// matrix, so a block's scores are one product per run of keys (its ancestors' runs and its own segment). Forward keeps
// the log of the softmax's denominator; backward recomputes the probabilities from it.
//
// Suffixes: B rows of a block (tokens x G), A keys that a block sees, E head_dim.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cmath>

#include "panel.h"
#include "profile.h"
#include "train.h"

namespace af {
namespace {

struct Shape {
  Shape(const af_model& m, const Plan& plan)
      : keys(plan.keys()),
        H(plan.share.heads.length),
        K(plan.share.kv_heads.length),
        E(m.config.head_dim),
        G(H / K),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(E)))) {}
  int64_t keys, H, K, E, G;
  float scale;
};

// The float32 columns of a matrix, whose rows may be wider.
struct Columns {
  explicit Columns(const at::Tensor& t) : data(t.const_data_ptr<float>()), stride(t.stride(0)) {}
  const float* data;
  int64_t stride;
};

struct Block {  // tokens first .. first + count of a segment
  const Segment* segment;
  int64_t first, count;
  int64_t keys() const { return segment->before + first + count; }
  int64_t row(int64_t i) const { return segment->row + first + i; }  // of its token i among the queries
};

// Consecutive blocks of about equal work. How many there are depends on the model and the batch alone, so that the sums
// over parts in backward have one order whatever the number of threads.
std::vector<std::vector<Block>> make_parts(const Shape& s, const Plan& plan, int64_t wanted) {
  const int64_t size = std::clamp<int64_t>(192 / s.G, 16, 128);
  std::vector<Block> blocks;
  int64_t work = 0;
  for (const Segment& segment : plan.segments) {
    for (int64_t first = 0; first < segment.length; first += size) {
      blocks.push_back({&segment, first, std::min(size, segment.length - first)});
      work += blocks.back().count * blocks.back().keys();
    }
  }
  std::vector<std::vector<Block>> parts(1);
  int64_t done = 0;
  for (const Block& b : blocks) {
    if (done * wanted >= work * static_cast<int64_t>(parts.size())) parts.emplace_back();
    parts.back().push_back(b);
    done += b.count * b.keys();
  }
  return parts;
}

// Runs of keys of a block: ancestors, then its own segment up to the block's end.
std::vector<Run> key_runs(const Block& b) {
  std::vector<Run> runs = b.segment->ancestors;
  add_run(runs, {b.segment->start, b.first + b.count});
  return runs;
}

at::Tensor matrix(const float* p, int64_t rows, int64_t columns, int64_t stride) {
  return at::from_blob(const_cast<float*>(p), {rows, columns}, {stride, 1}, at::kFloat);
}

// Scratch of one task; grows to the largest block.
struct Scratch {
  at::Tensor q_BE, o_BE, d_BE, s_BA, p_BA;
  float* need(at::Tensor& t, int64_t n) {
    if (!t.defined() || t.numel() < n) t = at::empty({n}, at::kFloat);
    return t.mutable_data_ptr<float>();
  }
};

// Copies the block's rows of x [T, *] at column into out [count * G, E], times scale.
void pack(float* out, const Columns& x, const Shape& s, const Block& b, int64_t column, float scale) {
  for (int64_t i = 0; i < b.count; i++) {
    kernel::scale_to(out + i * s.G * s.E, x.data + b.row(i) * x.stride + column, scale, s.G * s.E);
  }
}

// s_BA = q K^T for the block.
void scores(float* s_BA, const float* q_BE, const float* k, const Shape& s, int64_t B, int64_t A,
            const std::vector<Run>& runs, int64_t stride) {
  int64_t column = 0;
  for (const Run& r : runs) {
    plain_product(matrix(s_BA + column, B, r.length, A), matrix(q_BE, B, s.E, s.E),
                  matrix(k + r.start * stride, r.length, s.E, stride).t(), false);
    column += r.length;
  }
}

// o_BE = p V.
void values(float* o_BE, const float* p_BA, const float* v, const Shape& s, int64_t B, int64_t A,
            const std::vector<Run>& runs, int64_t stride) {
  int64_t column = 0;
  for (const Run& r : runs) {
    plain_product(matrix(o_BE, B, s.E, s.E), matrix(p_BA + column, B, r.length, A),
                  matrix(v + r.start * stride, r.length, s.E, stride), column > 0);
    column += r.length;
  }
}

Output sums(float* y, int64_t stride, int64_t width) { return {y, stride, width, nullptr, false, false}; }

// The scores in the engine's order of additions (attend.h): a score is one chain over E. panel [E, 16].
void scores_as_engine(float* s_BA, const float* q_BE, const float* k, const Shape& s, int64_t B, int64_t A,
                      const std::vector<Run>& runs, int64_t stride, float* panel) {
  int64_t column = 0;
  for (const Run& r : runs) {
    for (int64_t first = 0; first < r.length; first += kPanel) {
      const int64_t width = std::min(kPanel, r.length - first);
      std::fill_n(panel, s.E * kPanel, 0.0f);
      for (int64_t j = 0; j < width; j++) {
        const float* key = k + (r.start + first + j) * stride;
        for (int64_t e = 0; e < s.E; e++) panel[e * kPanel + j] = key[e];
      }
      panel_piece(sums(s_BA + column + first, A, width), q_BE, s.E, B, panel, s.E);
    }
    column += r.length;
  }
}

// o_BE = p V; an output is one chain over the keys. panel [A, 16].
void values_as_engine(float* o_BE, const float* p_BA, const float* v, const Shape& s, int64_t B, int64_t A,
                      const std::vector<Run>& runs, int64_t stride, float* panel) {
  for (int64_t first = 0; first < s.E; first += kPanel) {
    const int64_t width = std::min(kPanel, s.E - first);
    if (width < kPanel) std::fill_n(panel, A * kPanel, 0.0f);
    float* to = panel;
    for (const Run& r : runs) {
      for (int64_t t = r.start; t < r.start + r.length; t++, to += kPanel)
        std::copy_n(v + t * stride + first, width, to);
    }
    panel_piece(sums(o_BE + first, s.E, width), p_BA, A, B, panel, A);
  }
}

void forward_block(const Shape& s, const Block& b, int64_t kv, const Columns& q, const Columns& keys, float* out,
                   float* lse, bool as_engine, Scratch& scratch) {
  const int64_t B = b.count * s.G, A = b.keys(), q_column = kv * s.G * s.E;
  const float *k = keys.data + kv * s.E, *v = k + s.K * s.E;
  const std::vector<Run> runs = key_runs(b);
  float* q_BE = scratch.need(scratch.q_BE, B * s.E);
  float* o_BE = scratch.need(scratch.o_BE, B * s.E);
  float* s_BA = scratch.need(scratch.s_BA, B * A);
  float* panel = as_engine ? scratch.need(scratch.p_BA, kPanel * std::max(A, s.E)) : nullptr;
  pack(q_BE, q, s, b, q_column, s.scale);
  if (as_engine) {
    scores_as_engine(s_BA, q_BE, k, s, B, A, runs, keys.stride, panel);
  } else {
    scores(s_BA, q_BE, k, s, B, A, runs, keys.stride);
  }
  float* total_B = scratch.need(scratch.d_BE, B);
  for (int64_t row = 0; row < B; row++) {
    const int64_t i = row / s.G, seen = A - b.count + i + 1;
    float* line = s_BA + row * A;
    float max;
    total_B[row] = kernel::exp_minus_max(line, seen, &max);
    std::fill(line + seen, line + A, 0.0f);
    lse[b.row(i) * s.H + kv * s.G + row % s.G] = max + std::log(total_B[row]);
  }
  if (as_engine) {
    values_as_engine(o_BE, s_BA, v, s, B, A, runs, keys.stride, panel);
  } else {
    values(o_BE, s_BA, v, s, B, A, runs, keys.stride);
  }
  for (int64_t row = 0; row < B; row++) {
    const int64_t i = row / s.G, g = row % s.G;
    kernel::scale_to(out + b.row(i) * s.H * s.E + q_column + g * s.E, o_BE + row * s.E, 1 / total_B[row], s.E);
  }
}

struct Backward {
  Columns q, keys, out, d_out;
  const float* lse;
  float* d_q;
  int64_t d_q_stride;
};

// d_k, d_v [keys, E]: this task's own sums.
void backward_block(const Shape& s, const Block& b, int64_t kv, const Backward& p, float* d_k, float* d_v,
                    Scratch& scratch) {
  const int64_t B = b.count * s.G, A = b.keys(), q_column = kv * s.G * s.E, stride = p.keys.stride;
  const float *k = p.keys.data + kv * s.E, *v = k + s.K * s.E;
  const std::vector<Run> runs = key_runs(b);
  float* q_BE = scratch.need(scratch.q_BE, B * s.E);
  float* o_BE = scratch.need(scratch.o_BE, B * s.E);  // d_out, packed
  float* d_BE = scratch.need(scratch.d_BE, B * s.E);  // d_q, packed
  float* p_BA = scratch.need(scratch.p_BA, B * A);
  float* s_BA = scratch.need(scratch.s_BA, B * A);  // d_p, then d_s
  pack(q_BE, p.q, s, b, q_column, s.scale);
  pack(o_BE, p.d_out, s, b, q_column, 1);
  scores(p_BA, q_BE, k, s, B, A, runs, stride);
  scores(s_BA, o_BE, v, s, B, A, runs, stride);
  for (int64_t row = 0; row < B; row++) {
    const int64_t i = row / s.G, g = row % s.G, seen = A - b.count + i + 1;
    float *prob = p_BA + row * A, *d = s_BA + row * A;
    kernel::exp_minus(prob, seen, p.lse[b.row(i) * s.H + kv * s.G + g]);
    std::fill(prob + seen, prob + A, 0.0f);
    const float delta = static_cast<float>(
        kernel::dot(o_BE + row * s.E, p.out.data + b.row(i) * p.out.stride + q_column + g * s.E, s.E));
    kernel::softmax_backward(d, prob, seen, delta);
    std::fill(d + seen, d + A, 0.0f);
  }
  int64_t column = 0;
  for (const Run& r : runs) {
    const at::Tensor ds = matrix(s_BA + column, B, r.length, A);
    plain_product(matrix(d_v + r.start * s.E, r.length, s.E, s.E), matrix(p_BA + column, B, r.length, A).t(),
                  matrix(o_BE, B, s.E, s.E), true);
    plain_product(matrix(d_k + r.start * s.E, r.length, s.E, s.E), ds.t(), matrix(q_BE, B, s.E, s.E), true);
    plain_product(matrix(d_BE, B, s.E, s.E), ds, matrix(k + r.start * stride, r.length, s.E, stride), column > 0);
    column += r.length;
  }
  for (int64_t i = 0; i < b.count; i++) {
    kernel::scale_to(p.d_q + b.row(i) * p.d_q_stride + q_column, d_BE + i * s.G * s.E, s.scale, s.G * s.E);
  }
}

at::Tensor wide(const af_model& m, const at::Tensor& x) { return m.scratch(x.sizes()).copy_(x); }

// ---- any device: one segment at a time on ATen ----

struct SegmentView {
  at::Tensor q_KGLE, k_KAE, v_KAE, index_A, hidden_LA;  // hidden: keys that a row must not see
};

SegmentView segment_view(const Shape& s, const Segment& segment, const at::Tensor& q, const at::Tensor& all_keys) {
  const auto options = at::TensorOptions(q.device()).dtype(at::kLong);  // made there: a copy would wait for the device
  std::vector<at::Tensor> pieces;
  for (const Run& r : segment.ancestors) pieces.push_back(at::arange(r.start, r.start + r.length, options));
  pieces.push_back(at::arange(segment.start, segment.start + segment.length, options));
  SegmentView v;
  const int64_t L = segment.length;
  v.index_A = at::cat(pieces);
  const at::Tensor keys = all_keys.index_select(0, v.index_A).view({-1, 2, s.K, s.E});
  v.k_KAE = keys.select(1, 0).transpose(0, 1);
  v.v_KAE = keys.select(1, 1).transpose(0, 1);
  v.q_KGLE = q.narrow(0, segment.row, L).view({L, s.K, s.G, s.E}).permute({1, 2, 0, 3});
  v.hidden_LA =
      at::ones({L, segment.before + L}, at::TensorOptions(q.device()).dtype(at::kBool)).triu(segment.before + 1);
  return v;
}

at::Tensor segment_scores(const Shape& s, const SegmentView& v) {
  return product_float(v.q_KGLE, v.k_KAE.unsqueeze(1).transpose(-1, -2))
      .mul_(s.scale)
      .masked_fill_(v.hidden_LA, -INFINITY);
}

void attention_generic(const Shape& s, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                       const at::Tensor& out, const at::Tensor& lse) {
  for (const Segment& segment : plan.segments) {
    const SegmentView v = segment_view(s, segment, q, keys);
    const at::Tensor scores_KGLA = segment_scores(s, v), lse_KGL = at::logsumexp(scores_KGLA, {-1});
    const at::Tensor o = product_float(at::exp(scores_KGLA - lse_KGL.unsqueeze(-1)), v.v_KAE.unsqueeze(1));
    out.narrow(0, segment.row, segment.length).copy_(o.permute({2, 0, 1, 3}).reshape({segment.length, s.H * s.E}));
    lse.narrow(0, segment.row, segment.length).copy_(lse_KGL.permute({2, 0, 1}).reshape({segment.length, s.H}));
  }
}

at::Tensor backward_generic(const Shape& s, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                            const at::Tensor& out, const at::Tensor& lse, const at::Tensor& d_out,
                            const at::Tensor& d_q) {
  const at::Tensor sum = at::zeros(keys.sizes(), keys.options().dtype(at::kFloat));
  auto heads = [&](const at::Tensor& t, const Segment& g) {  // [T, HE] -> [K, G, L, E]
    return t.narrow(0, g.row, g.length).view({g.length, s.K, s.G, -1}).permute({1, 2, 0, 3});
  };
  for (const Segment& segment : plan.segments) {
    const int64_t L = segment.length;
    const SegmentView v = segment_view(s, segment, q, keys);
    const at::Tensor p_KGLA = at::exp(segment_scores(s, v) - heads(lse, segment));
    const at::Tensor d_o = heads(d_out, segment);
    const at::Tensor delta = (d_o.to(at::kFloat) * heads(out, segment)).sum(-1, true);
    const at::Tensor d_s = p_KGLA * (product_float(d_o, v.v_KAE.unsqueeze(1).transpose(-1, -2)) - delta);
    const at::Tensor d_v = product_float(p_KGLA.transpose(-1, -2), d_o).sum(1);
    const at::Tensor d_k = product_float(d_s.transpose(-1, -2), v.q_KGLE).sum(1).mul_(s.scale);
    const at::Tensor d_queries = product_float(d_s, v.k_KAE.unsqueeze(1)).mul_(s.scale);
    d_q.narrow(0, segment.row, L).copy_(d_queries.permute({2, 0, 1, 3}).reshape({L, s.H * s.E}));
    const at::Tensor d_keys = at::stack({d_k, d_v}).permute({2, 0, 1, 3}).reshape({-1, 2 * s.K * s.E});
    sum.index_add_(0, v.index_A, d_keys);  // no index twice: one order
  }
  return sum;
}

// ---- the CPU's kernels ----

void attention_kernels(const af_model& m, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                       const at::Tensor& out, const at::Tensor& lse) {
  const Shape s(m, plan);
  if (q.scalar_type() != at::kFloat) {
    const at::Tensor out32 = m.scratch(out.sizes());
    attention_kernels(m, plan, wide(m, q), wide(m, keys), out32, lse);
    out.copy_(out32);
    return;
  }
  const auto parts = make_parts(s, plan, 16);
  const Columns queries(q), all(keys);
  float *o = out.mutable_data_ptr<float>(), *l = lse.mutable_data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(parts.size()) * s.K, 1, [&](int64_t begin, int64_t end) {
    at::AutoDispatchBelowAutograd guard;
    Scratch scratch;
    for (int64_t unit = begin; unit < end; unit++) {
      for (const Block& b : parts[unit / s.K])
        forward_block(s, b, unit % s.K, queries, all, o, l, as_engine(m), scratch);
    }
  });
}

void backward_kernels(const af_model& m, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                      const at::Tensor& out, const at::Tensor& lse, const at::Tensor& d_out, const at::Tensor& d_q,
                      const at::Tensor& d_keys) {
  const Shape s(m, plan);
  if (q.scalar_type() != at::kFloat) {
    const at::Tensor d_q32 = m.scratch(d_q.sizes()), d_keys32 = m.scratch(d_keys.sizes());
    backward_kernels(m, plan, wide(m, q), wide(m, keys), wide(m, out), lse, wide(m, d_out), d_q32, d_keys32);
    d_q.copy_(d_q32);
    d_keys.copy_(d_keys32);
    return;
  }
  const auto parts = make_parts(s, plan, (15 + s.K) / s.K);
  const int64_t P = static_cast<int64_t>(parts.size());
  at::Tensor sums = m.scratch({P, s.K, 2, s.keys, s.E}).zero_();  // d_k and d_v of each part
  float* sum = sums.mutable_data_ptr<float>();
  const Backward pointers{Columns(q),
                          Columns(keys),
                          Columns(out),
                          Columns(d_out),
                          lse.const_data_ptr<float>(),
                          d_q.mutable_data_ptr<float>(),
                          d_q.stride(0)};
  at::parallel_for(0, P * s.K, 1, [&](int64_t begin, int64_t end) {
    at::AutoDispatchBelowAutograd guard;
    Scratch scratch;
    for (int64_t unit = begin; unit < end; unit++) {
      float *d_k = sum + unit * 2 * s.keys * s.E, *d_v = d_k + s.keys * s.E;
      for (const Block& b : parts[unit / s.K]) backward_block(s, b, unit % s.K, pointers, d_k, d_v, scratch);
    }
  });
  float* to = d_keys.mutable_data_ptr<float>();
  const int64_t stride = d_keys.stride(0);
  at::parallel_for(0, s.keys, 64, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      for (int64_t c = 0; c < 2 * s.K; c++) {  // columns: K keys, then K values
        float* d = to + t * stride + c * s.E;
        const float* first = sum + (c % s.K * 2 + c / s.K) * s.keys * s.E + t * s.E;
        kernel::scale_to(d, first, 1, s.E);
        for (int64_t part = 1; part < P; part++) kernel::add(d, first + part * s.K * 2 * s.keys * s.E, s.E);
      }
    }
  });
}

// The columns of qkv or d_qkv.
at::Tensor query_columns(const Shape& s, const at::Tensor& qkv) { return qkv.narrow(1, 0, s.H * s.E); }
at::Tensor key_columns(const Shape& s, const at::Tensor& qkv) { return qkv.narrow(1, s.H * s.E, 2 * s.K * s.E); }

// The keys of the whole batch.
at::Tensor keys_of(const af_model& m, const Shape& s, const Plan& plan, const at::Tensor& qkv) {
  const at::Tensor own = key_columns(s, qkv);
  return plan.context ? plan.context->gather(m, own) : own;
}

}  // namespace

void attention(const af_model& m, const Plan& plan, const at::Tensor& qkv, const at::Tensor& out,
               const at::Tensor& lse) {
  const StageTimer timer(Stage::kAttention, m.device);
  const Shape s(m, plan);
  const at::Tensor q = query_columns(s, qkv), keys = keys_of(m, s, plan, qkv);
  if (use_varlen(m)) return attention_varlen(m, plan, q, keys, out, lse);
  if (!use_kernels(m)) return attention_generic(s, plan, q, keys, out, lse);
  attention_kernels(m, plan, q, keys, out, lse);
}

void attention_backward(const af_model& m, const Plan& plan, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& lse, const at::Tensor& d_out, const at::Tensor& d_qkv) {
  const StageTimer timer(Stage::kAttention, m.device);
  const Shape s(m, plan);
  const at::Tensor q = query_columns(s, qkv), keys = keys_of(m, s, plan, qkv);
  const at::Tensor d_q = query_columns(s, d_qkv), d_own = key_columns(s, d_qkv);
  at::Tensor d_keys;
  if (use_varlen(m)) {
    d_keys = backward_varlen(m, plan, q, keys, out, lse, d_out, d_q);
  } else if (!use_kernels(m)) {
    d_keys = backward_generic(s, plan, q, keys, out, lse, d_out, d_q);
  } else {
    d_keys = plan.context ? m.scratch(keys.sizes()) : d_own;
    backward_kernels(m, plan, q, keys, out, lse, d_out, d_q, d_keys);
  }
  if (plan.context) {
    d_own.copy_(plan.context->sum(m, d_keys));
  } else if (!d_keys.is_same(d_own)) {
    d_own.copy_(d_keys);
  }
}

}  // namespace af

extern "C" af_error* af_attention(const af_model* m, const af_batch* b, const float* qkv, const float* d_out,
                                  float* out, float* lse, float* d_qkv) {
  return af::guard([&] {
    const af::Plan plan = af::make_plan(*m, *b);
    const int64_t T = plan.T, H = m->config.num_heads, columns = (H + 2 * m->config.num_kv_heads) * m->config.head_dim;
    const int64_t HE = H * m->config.head_dim;
    auto given = [&](const float* p, int64_t n) {
      return at::from_blob(const_cast<float*>(p), {T, n}, at::kFloat).to(m->device, m->dtype, false, true);
    };
    const at::Tensor x = given(qkv, columns), o = m->activation({T, HE}), l = m->scratch({T, H});
    const at::Tensor dx = m->activation({T, columns});
    af::attention(*m, plan, x, o, l);
    af::attention_backward(*m, plan, x, o, l, given(d_out, HE), dx);
    at::from_blob(out, {T, HE}, at::kFloat).copy_(o);
    at::from_blob(lse, {T, H}, at::kFloat).copy_(l);
    at::from_blob(d_qkv, {T, columns}, at::kFloat).copy_(dx);
  });
}
