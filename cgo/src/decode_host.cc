// Inference on the CPU: a paged cache of keys and values, and forwards of rows of several sequences at once.
//
// Each row writes its key and value first, then every row attends to tokens 0..position of its own sequence, so a call
// may hold a whole prompt, single tokens of many sequences, or both. Everything that a row goes through (packed
// products, attention, sampling) sums in an order that depends on the row alone, so its result is the same bits
// whatever the other rows are.
//
// Rows lie in float32. In bfloat16 matrices, keys and values lie in it, and what an operation makes is rounded to it
// where the trainer's forward in bfloat16 rounds (forward.cc): embeddings, norms, products with their bias, RoPE,
// attention, SwiGLU and the residual stream, but not the logits. On a CPU the two have the same bits, without adapters
// and where one process computes a layer; the logits too, but where the trainer takes MKL's (logits_out, product.cc).
//
// Layout of a block, for each layer and key/value head: attend.h.
#include <algorithm>
#include <cmath>

#include "attend.h"
#include "decode.h"
#include "kernels.h"
#include "linear.h"
#include "pool.h"

namespace af {
namespace {

struct PackedLayer {
  Linear qkv, o, gate_up, down;
  at::Tensor input_norm, post_norm, q_norm, k_norm;
};

// What steps read and write: the model's weights in panels, the keys and values.
struct HostCache {
  CacheShape shape;
  std::vector<at::Tensor> keys, values;  // per layer [num_blocks, K, elements of a block]: see attend.h
  std::vector<PackedLayer> layers;
  Linear head;
  at::Tensor norm;
  bool packed = false;
  uint64_t packed_version = 0;  // of the model, when layers and head were packed
  std::shared_ptr<Pool> pool = std::make_shared<Pool>();
};

// A vector of parameters as the cache computes with it; may be undefined.
at::Tensor vector(const HostCache& c, const at::Tensor& t) {
  return c.shape.half && t.defined() ? t.to(at::kBFloat16).to(at::kFloat) : t;
}

Loop loop_of(Team& team) {
  return {team.size(),
          [&team](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) { team.run(n, grain, f); }};
}

void pack(HostCache& c, const Loop& loop) {
  const af_model& m = *c.shape.model;
  if (c.packed && c.packed_version == m.version) return;
  c.packed = false;
  c.layers.resize(m.layers.size());
  for (size_t i = 0; i < m.layers.size(); i++) {
    const Layer& l = m.layers[i];
    const LayerAdapters a = m.adapters.empty() ? LayerAdapters() : m.adapters[i];
    PackedLayer& to = c.layers[i];
    to.qkv.pack(loop, merged(m, l.qkv_weight, a.qkv), vector(c, l.qkv_bias), c.shape.half);
    to.o.pack(loop, merged(m, l.o_weight_DHE, a.o), vector(c, l.o_bias), c.shape.half);
    to.gate_up.pack(loop, merged(m, l.gate_up_weight, a.gate_up), vector(c, l.gate_up_bias), c.shape.half);
    to.down.pack(loop, merged(m, l.down_weight_DF, a.down), vector(c, l.down_bias), c.shape.half);
    to.input_norm = vector(c, l.input_norm_D), to.post_norm = vector(c, l.post_norm_D);
    to.q_norm = vector(c, l.q_norm_E), to.k_norm = vector(c, l.k_norm_E);
  }
  c.head.pack(loop, m.head_VD, {}, c.shape.half);
  c.norm = vector(c, m.norm_D);
  c.packed_version = m.version;
  c.packed = true;
}

// One step. Rows are [R, *] float32.
class Step {
 public:
  Step(HostCache& cache, const af_step& step, Team& of)
      : c(cache),
        team(of),
        loop(loop_of(of)),
        m(*cache.shape.model),
        s(step),
        R(s.num_rows),
        D(m.config.hidden_size),
        F(m.config.intermediate_size),
        H(m.config.num_heads),
        K(m.config.num_kv_heads),
        E(m.config.head_dim),
        eps(static_cast<float>(m.config.rms_norm_eps)),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(E)))),
        writes(cache.shape.writers(step)),
        all_spans(spans()),
        pairs(count_pairs()) {
    x = make(D), normed = make(D), qkv = make((H + 2 * K) * E), attn = make(H * E), gate_up = make(2 * F),
    act = make(F);
    const int64_t half = E / 2;
    cos = make(half), sin = make(half);
    const float factor = static_cast<float>(m.config.attention_factor);
    each_row(all(), half * 16, [&](int64_t r) {
      kernel::rotation(cos + r * half, sin + r * half, static_cast<float>(s.positions[r]), m.config.inv_freq, half,
                       factor);
    });
  }

  at::Tensor run() {
    each_row(all(), D, [&](int64_t r) {
      std::copy_n(m.embed_VD.const_data_ptr<float>() + s.tokens[r] * D, D, x + r * D);
      settle(x + r * D, D);
    });
    const int64_t L = m.config.num_layers;
    for (int64_t i = 0; i <= L; i++) {  // from one attention to the next no row needs another
      if (i > 0) attention(i - 1);
      in_parts(loop, R, [&](const Loop& within, int64_t first, int64_t count) {
        const Part part{within, first, count};
        if (i > 0) after_attention(c.layers[i - 1], part);
        if (i < L) before_attention(c.layers[i], i, part);
      });
    }
    if (s.num_outputs == 0) return {};
    const int64_t O = s.num_outputs, width = in_panels(m.config.vocab_size);
    const float* weight = c.norm.const_data_ptr<float>();
    float *last = make_rows(O, D), *logits = make_rows(O, width);
    c.head.apply(loop, logits, width,
                 {last, D, [&](int64_t i) { norm(last + i * D, x + s.output_row[i] * D, weight); }}, O, false, false);
    return buffers.back();
  }

 private:
  // The rows that one call of in_parts is for.
  struct Part {
    const Loop& loop;
    int64_t first, count;
  };

  Part all() const { return {loop, 0, R}; }

  float* make_rows(int64_t rows, int64_t n) {
    buffers.push_back(c.pool->take({rows, n}));
    return buffers.back().mutable_data_ptr<float>();
  }
  float* make(int64_t n) { return make_rows(R, n); }

  // f of each row, on several threads when the rows hold work enough: floats is what one row reads or writes.
  template <class Fn>
  static void each_row(const Part& part, int64_t floats, const Fn& f) {
    part.loop.run(part.count, std::max<int64_t>(1, 16384 / floats), [&](int64_t begin, int64_t end) {
      for (int64_t r = part.first + begin; r < part.first + end; r++) f(r);
    });
  }

  // Rounds n numbers of a row where the cache computes in bfloat16.
  void settle(float* row, int64_t n) const {
    if (c.shape.half) kernel::to_half(row, n);
  }
  void norm(float* to, const float* row, const float* weight) const {
    kernel::rms_norm(to, row, weight, D, eps);
    settle(to, D);
  }
  // The part's rows of x, normed where they are needed.
  Rows normed_by(const at::Tensor& weight, const Part& part) const {
    const float* w = weight.const_data_ptr<float>();
    return {normed + part.first * D, D, [this, w, &part](int64_t i) {
              const int64_t at = (part.first + i) * D;
              norm(normed + at, x + at, w);
            }};
  }

  void before_attention(const PackedLayer& l, int64_t index, const Part& part) {
    const int64_t width = (H + 2 * K) * E;
    l.qkv.apply(part.loop, qkv + part.first * width, width, normed_by(l.input_norm, part), part.count, false,
                c.shape.half);
    store(l, index, part);
  }

  void after_attention(const PackedLayer& l, const Part& part) {
    const int64_t first = part.first, count = part.count;
    float *to = x + first * D, *gates = gate_up + first * 2 * F, *acts = act + first * F;
    l.o.apply(part.loop, to, D, {attn + first * H * E, H * E, nullptr}, count, true, c.shape.half);
    l.gate_up.apply(part.loop, gates, 2 * F, normed_by(l.post_norm, part), count, false, c.shape.half);
    const auto activate = [&](int64_t i) {
      if (c.shape.half) {
        kernel::half_swiglu(acts + i * F, gates + i * 2 * F, F);
      } else {
        kernel::swiglu(acts + i * F, gates + i * 2 * F, F);
      }
    };
    l.down.apply(part.loop, to, D, {acts, F, activate}, count, true, c.shape.half);
  }

  // q/k norm, RoPE, in float32 the attention's scale on q, and the row's key and value into the cache.
  void store(const PackedLayer& l, int64_t index, const Part& part) {
    const int64_t width = (H + 2 * K) * E, half = E / 2;
    const float *q_norm = nullptr, *k_norm = nullptr;
    if (m.config.qk_norm) q_norm = l.q_norm.const_data_ptr<float>(), k_norm = l.k_norm.const_data_ptr<float>();
    each_row(part, 2 * width, [&](int64_t r) {
      float* row = qkv + r * width;
      for (int64_t h = 0; q_norm != nullptr && h < H + K; h++) {
        kernel::rms_norm(row + h * E, row + h * E, h < H ? q_norm : k_norm, E, eps);
        settle(row + h * E, E);
      }
      kernel::rope(row, cos + r * half, sin + r * half, H + K, E, 1);
      settle(row, (H + K) * E);
      if (!c.shape.half) kernel::scale_to(row, row, scale, H * E);
      if (!writes[static_cast<size_t>(r)]) return;
      const int64_t slot = c.shape.slot(s, s.sequence[r], s.positions[r]), B = c.shape.block_size;
      for (int64_t k = 0; k < K; k++) {
        const float *key = row + (H + k) * E, *value = key + K * E;
        const int64_t block = slot / B, at = slot % B;
        if (c.shape.half) {
          put(head<bfloat16>(index, k), block, at, key, value);
        } else {
          put(head<float>(index, k), block, at, key, value);
        }
      }
    });
  }

  template <class W>
  PagedHead<W> head(int64_t index, int64_t k) const {
    const int64_t B = c.shape.block_size, keys = key_elements<W>(B, E), values = value_elements<W>(B, E);
    W *first_key = static_cast<W*>(c.keys[index].mutable_data_ptr()),
      *first_value = static_cast<W*>(c.values[index].mutable_data_ptr());
    return {first_key + k * keys, first_value + k * values, K * keys, K * values, B, E};
  }

  // Rows of consecutive tokens of a sequence.
  struct Span {
    int64_t first, count;
  };
  // All rows in spans. In bfloat16 a span's queries are the rows of one product: eight tokens fill its tiles, where
  // that leaves work for every thread and the scores stay in its second-level cache.
  std::vector<Span> spans() const {
    constexpr int64_t kMostScores = 1 << 17;
    const int64_t most = c.shape.half ? std::clamp<int64_t>(K * R / (2 * team.size()), 1, 8) : 1;
    std::vector<Span> all;
    for (int64_t r = 0; r < R; r++) {
      const bool goes_on = r > 0 && s.sequence[r] == s.sequence[r - 1] && s.positions[r] == s.positions[r - 1] + 1;
      const int64_t count = goes_on ? all.back().count + 1 : 1;
      if (1 < count && count <= most && count * H / K * (s.positions[r] + 1) <= kMostScores) {
        all.back().count++;
      } else {
        all.push_back({r, 1});
      }
    }
    return all;
  }

  // Pairs of a row and a token that it sees: the work of an attention.
  int64_t count_pairs() const {
    int64_t n = 0;
    for (int64_t r = 0; r < R; r++) n += s.positions[r] + 1;
    return n;
  }

  // Heads outside, rows inside: rows that share a prefix find its keys in the cache.
  void attention(int64_t index) {
    const int64_t width = (H + 2 * K) * E, G = H / K, S = static_cast<int64_t>(all_spans.size());
    const int64_t grain = std::max<int64_t>(1, 32768 * S / (pairs * G * E));
    team.run(K * S, grain, [&](int64_t begin, int64_t end) {
      AttendScratch scratch;
      for (int64_t unit = begin; unit < end; unit++) {
        const Span& span = all_spans[static_cast<size_t>(unit % S)];
        const int64_t k = unit / S, r = span.first, n = s.positions[r] + span.count;
        const int32_t* blocks = s.block_table + s.sequence[r] * s.max_blocks;
        const float* q = qkv + r * width + k * G * E;
        float* to = attn + (r * H + k * G) * E;
        if (c.shape.half) {
          attend({q, width, to, H * E, span.count, G}, head<bfloat16>(index, k), scale, blocks, n, scratch);
          for (int64_t i = 0; i < span.count; i++) settle(to + i * H * E, G * E);
        } else {
          attend(to, q, G, head<float>(index, k), blocks, n, scratch);
        }
      }
    });
  }

  HostCache& c;
  Team& team;
  const Loop loop;
  const af_model& m;
  const af_step& s;
  const int64_t R, D, F, H, K, E;
  const float eps, scale;          // of the norms, of attention's scores
  const std::vector<bool> writes;  // [R] whether the row's key and value go to the cache
  const std::vector<Span> all_spans;
  const int64_t pairs;
  std::vector<at::Tensor> buffers;
  float *x, *normed, *qkv, *attn, *gate_up, *act, *cos, *sin;
};

class HostDecoder : public Decoder {
 public:
  explicit HostDecoder(const CacheShape& shape) {
    c.shape = shape;
    const af_model_config& config = shape.model->config;
    const int64_t K = config.num_kv_heads, E = config.head_dim, B = shape.block_size;
    const auto type = shape.half ? at::kBFloat16 : at::kFloat;
    const int64_t keys = shape.half ? key_elements<bfloat16>(B, E) : key_elements<float>(B, E);
    const int64_t values = shape.half ? value_elements<bfloat16>(B, E) : value_elements<float>(B, E);
    for (int64_t i = 0; i < config.num_layers; i++) {  // not touched, so that unused blocks take no memory
      c.keys.push_back(at::empty({shape.num_blocks, K, keys}, type));
      c.values.push_back(at::empty({shape.num_blocks, K, values}, type));
    }
  }
  at::Tensor run(const af_step& s, Team& team) override {
    pack(c, loop_of(team));
    c.pool->begin_step();
    return Step(c, s, team).run();
  }
  bool batch_invariant() const override { return true; }

 private:
  HostCache c;
};

}  // namespace

std::unique_ptr<Decoder> host_decoder(const CacheShape& shape) { return std::make_unique<HostDecoder>(shape); }

}  // namespace af
