// Inference: a paged cache of keys and values, and forwards of rows of several sequences at once.
//
// Each row writes its key and value first, then every row attends to tokens 0..position of its own sequence, so a call
// may hold a whole prompt, single tokens of many sequences, or both. Everything that a row goes through (packed
// products, attention, sampling) sums in an order that depends on the row alone, so its result is the same bits
// whatever the other rows are.
//
// Rows lie in float32. In bfloat16 matrices, keys and values lie in it, and what an operation makes is rounded to it
// where the trainer's forward in bfloat16 rounds (forward.cc): embeddings, norms, products with their bias, RoPE,
// attention, SwiGLU and the residual stream, but not the logits. The two give the same bits up to the logits on a CPU,
// without adapters and where one process computes a layer.
//
// Layout of a block, for each layer and key/value head: attend.h.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cmath>

#include "attend.h"
#include "exchange.h"
#include "kernels.h"
#include "linear.h"
#include "pool.h"
#include "sample.h"
#include "team.h"

namespace af {
namespace {

struct PackedLayer {
  Linear qkv, o, gate_up, down;
  at::Tensor input_norm, post_norm, q_norm, k_norm;
};

}  // namespace
}  // namespace af

struct af_cache {
  std::shared_ptr<af_model> model;
  int64_t num_blocks = 0, block_size = 0;
  bool half = false;                     // it computes in bfloat16
  std::vector<at::Tensor> keys, values;  // per layer [num_blocks, K, elements of a block]: see attend.h
  std::vector<af::PackedLayer> layers;
  af::Linear head;
  at::Tensor norm;
  bool packed = false;
  uint64_t packed_version = 0;  // of the model, when layers and head were packed
  std::shared_ptr<af::Pool> pool = std::make_shared<af::Pool>();
  int threads = 0;  // that the team was made for
  std::unique_ptr<af::Team> team;
};

namespace af {
namespace {

void check_range(const char* what, int64_t i, int64_t value, int64_t end) {
  if (value >= 0 && value < end) return;
  throw InputError(std::string("step: ") + what + "[" + std::to_string(i) + "] is " + std::to_string(value) +
                   ", allowed are 0 to " + std::to_string(end - 1));
}

void check_step(const af_cache& c, const af_step& s) {
  if (s.num_rows < 1 || s.num_sequences < 1 || s.max_blocks < 1 || s.num_outputs < 0) {
    throw InputError("step: it needs at least one row, one sequence and one block");
  }
  std::vector<int64_t> used(s.num_sequences, 0);  // blocks of the table that are read
  for (int64_t i = 0; i < s.num_rows; i++) {
    check_range("tokens", i, s.tokens[i], c.model->config.vocab_size);
    check_range("sequence", i, s.sequence[i], s.num_sequences);
    check_range("positions", i, s.positions[i], s.max_blocks * c.block_size);
    int64_t& n = used[s.sequence[i]];
    n = std::max(n, s.positions[i] / c.block_size + 1);
  }
  for (int64_t i = 0; i < s.num_sequences; i++) {
    for (int64_t b = 0; b < used[i]; b++)
      check_range("block_table", i * s.max_blocks + b, s.block_table[i * s.max_blocks + b], c.num_blocks);
  }
  for (int64_t i = 0; i < s.num_outputs; i++) {
    check_range("output_row", i, s.output_row[i], s.num_rows);
    if (s.target[i] != -1) {
      check_range("target", i, s.target[i], c.model->config.vocab_size);
      continue;
    }
    for (int64_t e = i == 0 ? 0 : s.edit_end[i - 1]; e < s.edit_end[i]; e++) {
      check_range("edit_token", e, s.edit_token[e], c.model->config.vocab_size);
      if (!(s.edit_divide[e] > 0 && s.edit_divide[e] < INFINITY) || !(s.edit_minus[e] > -INFINITY))
        throw InputError("step: edit " + std::to_string(e) +
                         " needs a finite divide above 0 and a minus above -infinity");
    }
    check_range("allowed_row", i, s.allowed_row[i] + 1, s.num_allowed + 1);
    check_range("detail", i, s.detail[i] + 1, 2 * c.model->config.vocab_size + 3);
    if (s.detail[i] >= 0 && s.detail[i] / 2 > s.max_top)
      throw InputError("step: output " + std::to_string(i) + " lists more than max_top tokens");
    if (!(s.temperature[i] >= 0 && s.temperature[i] < INFINITY) || !(s.top_p[i] > 0 && s.top_p[i] <= 1) ||
        s.top_k[i] < 0 || !(s.min_p[i] >= 0 && s.min_p[i] < 1)) {
      throw InputError("step: output " + std::to_string(i) +
                       " needs temperature >= 0, 0 < top_p <= 1, top_k >= 0 and 0 <= min_p < 1");
    }
  }
}

// A vector of parameters as the cache computes with it; may be undefined.
at::Tensor vector(const af_cache& c, const at::Tensor& t) {
  return c.half && t.defined() ? t.to(at::kBFloat16).to(at::kFloat) : t;
}

Loop loop_of(Team& team) {
  return [&team](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) { team.run(n, grain, f); };
}

void pack(af_cache& c) {
  const af_model& m = *c.model;
  if (c.packed && c.packed_version == m.version) return;
  c.packed = false;
  const Loop loop = loop_of(*c.team);
  c.layers.resize(m.layers.size());
  for (size_t i = 0; i < m.layers.size(); i++) {
    const Layer& l = m.layers[i];
    const LayerAdapters a = m.adapters.empty() ? LayerAdapters() : m.adapters[i];
    PackedLayer& to = c.layers[i];
    to.qkv.pack(loop, merged(m, l.qkv_weight, a.qkv), vector(c, l.qkv_bias), c.half);
    to.o.pack(loop, merged(m, l.o_weight_DHE, a.o), vector(c, l.o_bias), c.half);
    to.gate_up.pack(loop, merged(m, l.gate_up_weight, a.gate_up), vector(c, l.gate_up_bias), c.half);
    to.down.pack(loop, merged(m, l.down_weight_DF, a.down), vector(c, l.down_bias), c.half);
    to.input_norm = vector(c, l.input_norm_D), to.post_norm = vector(c, l.post_norm_D);
    to.q_norm = vector(c, l.q_norm_E), to.k_norm = vector(c, l.k_norm_E);
  }
  c.head.pack(loop, m.head_VD, {}, c.half);
  c.norm = vector(c, m.norm_D);
  c.packed_version = m.version;
  c.packed = true;
}

// One call of af_cache_step. Rows are [R, *] float32.
class Step {
 public:
  Step(af_cache& cache, const af_step& step)
      : c(cache),
        team(*cache.team),
        loop(loop_of(*cache.team)),
        m(*cache.model),
        s(step),
        R(s.num_rows),
        D(m.config.hidden_size),
        F(m.config.intermediate_size),
        H(m.config.num_heads),
        K(m.config.num_kv_heads),
        E(m.config.head_dim),
        eps(static_cast<float>(m.config.rms_norm_eps)),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(E)))) {
    find_writers();
    x = make(D), normed = make(D), qkv = make((H + 2 * K) * E), attn = make(H * E), gate_up = make(2 * F),
    act = make(F);
    const int64_t half = E / 2;
    cos = make(half), sin = make(half);
    const float factor = static_cast<float>(m.config.attention_factor);
    each_row(half * 16, [&](int64_t r) {
      kernel::rotation(cos + r * half, sin + r * half, static_cast<float>(s.positions[r]), m.config.inv_freq, half,
                       factor);
    });
  }

  void run(int32_t* sampled, float* logprobs) {
    each_row(D, [&](int64_t r) {
      std::copy_n(m.embed_VD.const_data_ptr<float>() + s.tokens[r] * D, D, x + r * D);
      settle(x + r * D, D);
    });
    for (int64_t i = 0; i < m.config.num_layers; i++) layer(i);
    if (s.num_outputs == 0) return;
    const int64_t O = s.num_outputs, V = m.config.vocab_size, width = (V + 15) / 16 * 16;
    const float* weight = c.norm.const_data_ptr<float>();
    float *last = make_rows(O, D), *logits = make_rows(O, width);
    for (int64_t i = 0; i < O; i++) norm(last + i * D, x + s.output_row[i] * D, weight);
    c.head.apply(loop, logits, width, last, D, O, false, false);
    team.run(O, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        float* row = logits + i * width;
        const int64_t detail = s.target[i] < 0 ? s.detail[i] : -1;
        std::vector<float> raw;
        if (detail >= 0 && detail % 2 == 1) raw.assign(row, row + V);  // sampling overwrites the row
        const Sampled got =
            s.target[i] >= 0
                ? score(row, V, s.target[i])
                : sample(row, V,
                         {s.temperature[i], s.top_p[i], s.top_k[i], s.min_p[i], s.seed[i], s.counter[i], edit(i, row)});
        sampled[i] = got.token;
        logprobs[i] = got.logprob;
        if (detail >= 0) report(i, detail / 2, raw.empty() ? row : raw.data(), got, !raw.empty());
      }
    });
  }

  // Makes the edits of output i in its logits and excludes the tokens that are not allowed. False: there is neither.
  bool edit(int64_t i, float* row) const {
    const int64_t V = c.model->config.vocab_size;
    if (s.allowed_row[i] >= 0) {
      const uint64_t* allowed = s.allowed + s.allowed_row[i] * ((V + 63) / 64);
      for (int64_t t = 0; t < V; t++)
        if (!(allowed[t / 64] >> (t % 64) & 1)) row[t] = -INFINITY;
    }
    const int64_t begin = i == 0 ? 0 : s.edit_end[i - 1];
    for (int64_t e = begin; e < s.edit_end[i]; e++) {
      float& z = row[s.edit_token[e]];
      z = z > 0 ? z / s.edit_divide[e] : z * s.edit_divide[e];
      z -= s.edit_minus[e];
    }
    return s.edit_end[i] > begin || s.allowed_row[i] >= 0;
  }

  // Fills output i of reported and the lists from its row: the logits, or what sampling made of them.
  void report(int64_t i, int64_t k, const float* row, const Sampled& got, bool raw) const {
    const int64_t V = c.model->config.vocab_size;
    const double log_total = raw ? log_sum(row, V) : static_cast<double>(row[got.token]) - got.logprob;
    s.reported[i] = raw ? static_cast<float>(std::min(0.0, row[got.token] - log_total)) : got.logprob;
    if (s.max_top == 0) return;
    std::fill_n(s.top_ids + i * s.max_top, s.max_top, -1);
    if (k > 0) top(row, V, k, log_total, s.top_ids + i * s.max_top, s.top_logprobs + i * s.max_top);
  }

 private:
  float* make_rows(int64_t rows, int64_t n) {
    buffers.push_back(c.pool->take({rows, n}));
    return buffers.back().mutable_data_ptr<float>();
  }
  float* make(int64_t n) { return make_rows(R, n); }

  // f of each row, on several threads when the rows hold work enough: floats is what one row reads or writes.
  template <class Fn>
  void each_row(int64_t floats, const Fn& f) const {
    team.run(R, std::max<int64_t>(1, 16384 / floats), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; r++) f(r);
    });
  }

  // Rounds n numbers of a row where the cache computes in bfloat16.
  void settle(float* row, int64_t n) const {
    if (c.half) kernel::to_half(row, n);
  }
  void norm(float* to, const float* row, const float* weight) const {
    kernel::rms_norm(to, row, weight, D, eps);
    settle(to, D);
  }
  void norm(const at::Tensor& weight) {
    const float* w = weight.const_data_ptr<float>();
    each_row(D, [&](int64_t r) { norm(normed + r * D, x + r * D, w); });
  }

  void layer(int64_t i) {
    const PackedLayer& l = c.layers[i];
    const int64_t width = (H + 2 * K) * E;
    norm(l.input_norm);
    l.qkv.apply(loop, qkv, width, normed, D, R, false, c.half);
    store(l, i);
    attention(i);
    l.o.apply(loop, x, D, attn, H * E, R, true, c.half);
    norm(l.post_norm);
    l.gate_up.apply(loop, gate_up, 2 * F, normed, D, R, false, c.half);
    each_row(3 * F, [&](int64_t r) {
      kernel::swiglu(act + r * F, gate_up + r * 2 * F, F);
      settle(act + r * F, F);
    });
    l.down.apply(loop, x, D, act, F, R, true, c.half);
  }

  // Several rows may be the same token of a shared block: the last one of a prompt that a group shares whole. They
  // compute the same bits, and the first of them writes.
  void find_writers() {
    writes.assign(static_cast<size_t>(R), true);
    std::vector<bool> written(static_cast<size_t>(c.num_blocks * c.block_size), false);
    for (int64_t r = 0; r < R; r++) {
      const size_t slot = static_cast<size_t>(block_of(r) * c.block_size + s.positions[r] % c.block_size);
      writes[static_cast<size_t>(r)] = !written[slot];
      written[slot] = true;
    }
  }
  int64_t block_of(int64_t r) const {
    return s.block_table[s.sequence[r] * s.max_blocks + s.positions[r] / c.block_size];
  }

  // q/k norm, RoPE, in float32 the attention's scale on q, and the row's key and value into the cache.
  void store(const PackedLayer& l, int64_t index) {
    const int64_t width = (H + 2 * K) * E, half = E / 2;
    const float *q_norm = nullptr, *k_norm = nullptr;
    if (m.config.qk_norm) q_norm = l.q_norm.const_data_ptr<float>(), k_norm = l.k_norm.const_data_ptr<float>();
    each_row(2 * width, [&](int64_t r) {
      float* row = qkv + r * width;
      for (int64_t h = 0; q_norm != nullptr && h < H + K; h++) {
        kernel::rms_norm(row + h * E, row + h * E, h < H ? q_norm : k_norm, E, eps);
        settle(row + h * E, E);
      }
      kernel::rope(row, cos + r * half, sin + r * half, H + K, E, 1);
      settle(row, (H + K) * E);
      if (!c.half) kernel::scale_to(row, row, scale, H * E);
      if (!writes[static_cast<size_t>(r)]) return;
      for (int64_t k = 0; k < K; k++) {
        const float *key = row + (H + k) * E, *value = key + K * E;
        const int64_t block = block_of(r), slot = s.positions[r] % c.block_size;
        if (c.half) {
          put(head<bfloat16>(index, k), block, slot, key, value);
        } else {
          put(head<float>(index, k), block, slot, key, value);
        }
      }
    });
  }

  template <class W>
  PagedHead<W> head(int64_t index, int64_t k) const {
    const int64_t B = c.block_size, keys = key_elements<W>(B, E), values = value_elements<W>(B, E);
    W *first_key = static_cast<W*>(c.keys[index].mutable_data_ptr()),
      *first_value = static_cast<W*>(c.values[index].mutable_data_ptr());
    return {first_key + k * keys, first_value + k * values, K * keys, K * values, B, E};
  }

  // Heads outside, rows inside: rows that share a prefix find its keys in the cache.
  void attention(int64_t index) {
    const int64_t width = (H + 2 * K) * E, G = H / K;
    int64_t pairs = 0;
    for (int64_t r = 0; r < R; r++) pairs += s.positions[r] + 1;
    const int64_t grain = std::max<int64_t>(1, 32768 * R / (pairs * G * E));
    team.run(K * R, grain, [&](int64_t begin, int64_t end) {
      AttendScratch scratch;
      for (int64_t unit = begin; unit < end; unit++) {
        const int64_t k = unit / R, r = unit % R, n = s.positions[r] + 1;
        const int32_t* blocks = s.block_table + s.sequence[r] * s.max_blocks;
        const float* q = qkv + r * width + k * G * E;
        float* to = attn + (r * H + k * G) * E;
        if (c.half) {
          attend(to, q, G, head<bfloat16>(index, k), scale, blocks, n, scratch);
          settle(to, G * E);
        } else {
          attend(to, q, G, head<float>(index, k), blocks, n, scratch);
        }
      }
    });
  }

  af_cache& c;
  Team& team;
  const Loop loop;
  const af_model& m;
  const af_step& s;
  const int64_t R, D, F, H, K, E;
  const float eps, scale;  // of the norms, of attention's scores
  std::vector<at::Tensor> buffers;
  std::vector<bool> writes;  // [R] whether the row's key and value go to the cache
  float *x, *normed, *qkv, *attn, *gate_up, *act, *cos, *sin;
};

}  // namespace
}  // namespace af

extern "C" {

af_error* af_cache_new(af_model* m, int64_t num_blocks, int64_t block_size, int dtype, af_cache** out) {
  return af::guard([&] {
    if (num_blocks < 1 || num_blocks > INT32_MAX)
      throw af::InputError("cache: it needs 1 to 2^31 - 1 blocks, not " + std::to_string(num_blocks));
    if (block_size < 8 || block_size % 8 != 0 || block_size > 1024) {
      throw af::InputError("cache: block_size is " + std::to_string(block_size) +
                           ", allowed are multiples of 8 up to 1024");
    }
    if (dtype != AF_F32 && dtype != AF_BF16)
      throw af::InputError("cache: dtype is " + std::to_string(dtype) + ", allowed are float32 and bfloat16");
    if (!m->device.is_cpu())
      throw af::InputError("cache: the local engine runs on the CPU only, the model is on " + m->device.str());
    auto c = std::make_unique<af_cache>();
    c->model = m->shared_from_this();
    c->num_blocks = num_blocks;
    c->block_size = block_size;
    c->half = dtype == AF_BF16;
    const int64_t K = m->config.num_kv_heads, E = m->config.head_dim;
    const auto type = c->half ? at::kBFloat16 : at::kFloat;
    const int64_t keys =
        c->half ? af::key_elements<af::bfloat16>(block_size, E) : af::key_elements<float>(block_size, E);
    const int64_t values =
        c->half ? af::value_elements<af::bfloat16>(block_size, E) : af::value_elements<float>(block_size, E);
    for (int64_t i = 0; i < m->config.num_layers; i++) {  // not touched, so that unused blocks take no memory
      c->keys.push_back(at::empty({num_blocks, K, keys}, type));
      c->values.push_back(at::empty({num_blocks, K, values}, type));
    }
    af::live++;
    *out = c.release();
  });
}

void af_cache_free(af_cache* c) {
  if (c == nullptr) return;
  delete c;
  af::live--;
}

af_error* af_cache_step(af_cache* c, const af_step* s, int32_t* sampled, float* logprobs) {
  return af::guard([&] {
    at::AutoDispatchBelowAutograd below;
    af::check_step(*c, *s);
    af::settle(*c->model);
    const int threads = at::get_num_threads();  // libtorch's number for the calling thread
    if (c->threads != threads) {
      c->team = std::make_unique<af::Team>(threads);
      c->threads = threads;
    }
    af::pack(*c);
    c->pool->begin_step();
    af::Step(*c, *s).run(sampled, logprobs);
  });
}

}  // extern "C"
