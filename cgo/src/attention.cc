// Causal attention over a forest of segments, grouped query heads. Where several ranks compute a batch, the queries are
// this rank's own and the keys those of all ranks.
//
// The queries of a block of tokens and of the G = H / K query heads that share a key/value head are the rows of one
// matrix. In float32 a block's scores are one product per run of keys (its ancestors' runs and its own segment); in
// bfloat16 they are one over all keys of the block, which attend.h computes. Forward keeps the log of the softmax's
// denominator; backward recomputes the probabilities from it.
//
// Suffixes: B rows of a block (tokens x G), A keys that a block sees, E head_dim.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cmath>

#include "attend.h"
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

constexpr int64_t kBlockRows = 192;  // of a block, about: its tokens times the query heads of a key's
constexpr int64_t kLeastTokens = 16, kMostTokens = 128;  // of a block, where the segment has as many

struct Block {  // tokens first .. first + count of a segment
  const Segment* segment;
  int64_t first, count;
  int64_t keys() const { return segment->before + first + count; }
  int64_t row(int64_t i) const { return segment->row + first + i; }  // of its token i among the queries
};

// Consecutive blocks of about equal work. How many there are depends on the model and the batch alone, so that the sums
// over parts in backward have one order whatever the number of threads.
std::vector<std::vector<Block>> make_parts(const Shape& s, const Plan& plan, int64_t wanted) {
  const int64_t size = std::clamp(kBlockRows / s.G, kLeastTokens, kMostTokens);
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

void forward_block(const Shape& s, const Block& b, int64_t kv, const Columns& q, const Columns& keys, float* out,
                   float* lse, Scratch& scratch) {
  const int64_t B = b.count * s.G, A = b.keys(), q_column = kv * s.G * s.E;
  const float *k = keys.data + kv * s.E, *v = k + s.K * s.E;
  const std::vector<Run> runs = key_runs(b);
  float* q_BE = scratch.need(scratch.q_BE, B * s.E);
  float* o_BE = scratch.need(scratch.o_BE, B * s.E);
  float* s_BA = scratch.need(scratch.s_BA, B * A);
  pack(q_BE, q, s, b, q_column, s.scale);
  scores(s_BA, q_BE, k, s, B, A, runs, keys.stride);
  float* total_B = scratch.need(scratch.d_BE, B);
  for (int64_t row = 0; row < B; row++) {
    const int64_t i = row / s.G, seen = A - b.count + i + 1;
    float* line = s_BA + row * A;
    float max;
    total_B[row] = kernel::exp_minus_max(line, seen, &max);
    std::fill(line + seen, line + A, 0.0f);
    lse[b.row(i) * s.H + kv * s.G + row % s.G] = max + std::log(total_B[row]);
  }
  values(o_BE, s_BA, v, s, B, A, runs, keys.stride);
  for (int64_t row = 0; row < B; row++) {
    const int64_t i = row / s.G, g = row % s.G;
    kernel::scale_to(out + b.row(i) * s.H * s.E + q_column + g * s.E, o_BE + row * s.E, 1 / total_B[row], s.E);
  }
}

// ---- the same in bfloat16, by attend.h: all tensors are of bfloat16, but lse ----

bfloat16* half_at(const at::Tensor& t, int64_t row, int64_t column) {
  return elements<bfloat16>(t) + row * t.stride(0) + column;
}

HalfBlock half_block(const Shape& s, const Block& b, int64_t kv, const at::Tensor& q, const at::Tensor& keys) {
  HalfBlock block{half_at(q, b.row(0), kv * s.G * s.E), q.stride(0), b.count, s.G, s.E, s.scale, {}, {}};
  const bfloat16* key = half_at(keys, 0, kv * s.E);
  const size_t seen = static_cast<size_t>(b.keys());
  block.keys.reserve(seen), block.values.reserve(seen);
  for (const Run& r : key_runs(b)) {
    for (int64_t t = r.start; t < r.start + r.length; t++) {
      block.keys.push_back(key + t * keys.stride(0));
      block.values.push_back(block.keys.back() + s.K * s.E);
    }
  }
  return block;
}

void half_forward_block(const Shape& s, const Block& b, int64_t kv, const at::Tensor& q, const at::Tensor& keys,
                        const at::Tensor& out, float* lse, AttendScratch& scratch) {
  attend_block(half_at(out, b.row(0), kv * s.G * s.E), out.stride(0), lse + b.row(0) * s.H + kv * s.G, s.H,
               half_block(s, b, kv, q, keys), scratch);
}

struct HalfBackward {
  const at::Tensor &q, &keys, &out, &d_out, &d_q;
  const float* lse;
};

// d_k, d_v [keys, E]: this task's own sums.
void half_backward_block(const Shape& s, const Block& b, int64_t kv, const HalfBackward& p, float* d_k, float* d_v,
                         AttendScratch& scratch) {
  const int64_t row = b.row(0), column = kv * s.G * s.E;
  TORCH_INTERNAL_ASSERT(p.out.stride(0) == p.d_out.stride(0));
  HalfGradients d{half_at(p.out, row, column),
                  half_at(p.d_out, row, column),
                  p.out.stride(0),
                  p.lse + row * s.H + kv * s.G,
                  s.H,
                  half_at(p.d_q, row, column),
                  p.d_q.stride(0),
                  {},
                  {}};
  const size_t seen = static_cast<size_t>(b.keys());
  d.d_keys.reserve(seen), d.d_values.reserve(seen);
  for (const Run& r : key_runs(b)) {
    for (int64_t t = r.start; t < r.start + r.length; t++)
      d.d_keys.push_back(d_k + t * s.E), d.d_values.push_back(d_v + t * s.E);
  }
  attend_block_backward(half_block(s, b, kv, p.q, p.keys), d, scratch);
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

// touched[part * keys + t]: whether a block of the part sees the key t. A part has sums for these keys alone, which are
// few where a batch has many sequences.
std::vector<char> touched_keys(const Shape& s, const std::vector<std::vector<Block>>& parts) {
  std::vector<char> touched(parts.size() * static_cast<size_t>(s.keys));
  char* of_part = touched.data();
  for (const std::vector<Block>& part : parts) {
    for (size_t i = 0; i < part.size(); i++) {
      if (i + 1 < part.size() && part[i + 1].segment == part[i].segment) continue;  // which sees these keys and more
      for (const Run& r : key_runs(part[i])) std::fill_n(of_part + r.start, r.length, char{1});
    }
    of_part += s.keys;
  }
  return touched;
}

void attention_kernels(const af_model& m, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                       const at::Tensor& out, const at::Tensor& lse) {
  const Shape s(m, plan);
  const auto parts = make_parts(s, plan, 16);
  float* l = lse.mutable_data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(parts.size()) * s.K, 1, [&](int64_t begin, int64_t end) {
    at::AutoDispatchBelowAutograd guard;
    Scratch scratch;
    AttendScratch half_scratch;
    for (int64_t unit = begin; unit < end; unit++) {
      for (const Block& b : parts[unit / s.K]) {
        if (as_engine(m)) {
          half_forward_block(s, b, unit % s.K, q, keys, out, l, half_scratch);
        } else {
          forward_block(s, b, unit % s.K, Columns(q), Columns(keys), out.mutable_data_ptr<float>(), l, scratch);
        }
      }
    }
  });
}

void backward_kernels(const af_model& m, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                      const at::Tensor& out, const at::Tensor& lse, const at::Tensor& d_out, const at::Tensor& d_q,
                      const at::Tensor& d_keys) {
  const Shape s(m, plan);
  const bool half = as_engine(m);
  const auto parts = make_parts(s, plan, (15 + s.K) / s.K);
  const int64_t P = static_cast<int64_t>(parts.size());
  const std::vector<char> touched = touched_keys(s, parts);
  const at::Tensor sums = m.scratch({P, s.K, 2, s.keys, s.E});  // d_k and d_v of the keys that each part sees
  float* sum = elements<float>(sums);
  const float* l = lse.const_data_ptr<float>();
  at::parallel_for(0, P * s.K, 1, [&](int64_t begin, int64_t end) {
    at::AutoDispatchBelowAutograd guard;
    Scratch scratch;
    AttendScratch half_scratch;
    for (int64_t unit = begin; unit < end; unit++) {
      float *d_k = sum + unit * 2 * s.keys * s.E, *d_v = d_k + s.keys * s.E;
      for (int64_t t = 0; t < s.keys; t++) {
        if (touched[unit / s.K * s.keys + t])
          std::fill_n(d_k + t * s.E, s.E, 0.0f), std::fill_n(d_v + t * s.E, s.E, 0.0f);
      }
      for (const Block& b : parts[unit / s.K]) {
        if (half) {
          half_backward_block(s, b, unit % s.K, {q, keys, out, d_out, d_q, l}, d_k, d_v, half_scratch);
        } else {
          const Backward pointers{
              Columns(q), Columns(keys), Columns(out), Columns(d_out), l, d_q.mutable_data_ptr<float>(), d_q.stride(0)};
          backward_block(s, b, unit % s.K, pointers, d_k, d_v, scratch);
        }
      }
    }
  });
  const at::Tensor total = half ? m.scratch(d_keys.sizes()) : d_keys;
  float* to = total.mutable_data_ptr<float>();
  const int64_t stride = total.stride(0);
  at::parallel_for(0, s.keys, 64, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      for (int64_t c = 0; c < 2 * s.K; c++) {  // columns: K keys, then K values
        float* d = to + t * stride + c * s.E;
        const float* first = sum + (c % s.K * 2 + c / s.K) * s.keys * s.E + t * s.E;
        std::fill_n(d, s.E, 0.0f);
        for (int64_t part = 0; part < P; part++) {
          if (touched[part * s.keys + t]) kernel::add(d, first + part * s.K * 2 * s.keys * s.E, s.E);
        }
      }
    }
  });
  if (half) d_keys.copy_(total);
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
