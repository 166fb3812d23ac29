// Inference: a paged cache of keys and values, and forwards of rows of several sequences at once.
//
// Each row writes its key and value first, then every row attends to tokens 0..position of its own sequence, so a call
// may hold a whole prompt, single tokens of many sequences, or both. Layout of a block, for each layer and key/value
// head: keys [E, block_size], values [block_size, E].
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <functional>

#include "internal.h"
#include "kernels.h"
#include "sample.h"

struct af_cache {
  std::shared_ptr<af_model> model;
  int64_t num_blocks = 0, block_size = 0;
  std::vector<at::Tensor> keys, values;  // per layer [num_blocks, K, E or block_size, block_size or E]
};

namespace af {
namespace {

constexpr int64_t kFixedRows = 32;  // rows of every matrix product in deterministic mode

void check_step(const af_cache& c, const af_step& s) {
  auto range = [](const char* what, int64_t i, int64_t value, int64_t end) {
    if (value < 0 || value >= end) {
      throw InputError(std::string(what) + "[" + std::to_string(i) + "] is " + std::to_string(value) + ", it must be in [0, " +
                       std::to_string(end) + ")");
    }
  };
  if (s.num_rows < 1 || s.num_sequences < 1 || s.max_blocks < 1 || s.num_outputs < 0) {
    throw InputError("step: it needs at least one row, one sequence and one block");
  }
  for (int64_t i = 0; i < s.num_rows; i++) {
    range("tokens", i, s.tokens[i], c.model->config.vocab_size);
    range("sequence", i, s.sequence[i], s.num_sequences);
    range("positions", i, s.positions[i], s.max_blocks * c.block_size);
    const int32_t* blocks = s.block_table + s.sequence[i] * s.max_blocks;
    for (int64_t b = 0; b <= s.positions[i] / c.block_size; b++) range("block_table", b, blocks[b], c.num_blocks);
  }
  for (int64_t i = 0; i < s.num_outputs; i++) {
    range("output_row", i, s.output_row[i], s.num_rows);
    if (!(s.temperature[i] >= 0) || !(s.top_p[i] > 0 && s.top_p[i] <= 1) || s.top_k[i] < 0 || !(s.min_p[i] >= 0 && s.min_p[i] < 1)) {
      throw InputError("step: output " + std::to_string(i) + " needs temperature >= 0, 0 < top_p <= 1, top_k >= 0, 0 <= min_p < 1");
    }
  }
}

// y = x w^T + bias. In deterministic mode in pieces of kFixedRows rows, the last one padded: a row's result then depends
// on that row alone.
void linear(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, bool deterministic) {
  auto whole = [&](at::Tensor out, const at::Tensor& in) {
    if (bias.defined()) {
      at::addmm_out(out, bias, in, w.t());
    } else {
      at::mm_out(out, in, w.t());
    }
  };
  if (!deterministic) return whole(y, x);
  const int64_t rows = x.size(0);
  for (int64_t start = 0; start < rows; start += kFixedRows) {
    const int64_t n = std::min(kFixedRows, rows - start);
    if (n == kFixedRows) {
      whole(y.narrow(0, start, n), x.narrow(0, start, n));
      continue;
    }
    const at::Tensor padded = at::zeros({kFixedRows, x.size(1)}, x.options());
    padded.narrow(0, 0, n).copy_(x.narrow(0, start, n));
    const at::Tensor out = at::empty({kFixedRows, y.size(1)}, y.options());
    whole(out, padded);
    y.narrow(0, start, n).copy_(out.narrow(0, 0, n));
  }
}

struct Forward {
  Forward(af_cache& cache, const af_step& step)
      : c(cache), m(*cache.model), s(step), R(s.num_rows), D(m.config.hidden_size), F(m.config.intermediate_size),
        H(m.config.num_heads), K(m.config.num_kv_heads), E(m.config.head_dim), det(s.deterministic != 0) {
    const auto options = m.flat.options();
    normed = at::empty({R, D}, options);
    qkv = at::empty({R, (H + 2 * K) * E}, options);
    attn = at::empty({R, H * E}, options);
    proj = at::empty({R, D}, options);
    gate_up = at::empty({R, 2 * F}, options);
    act = at::empty({R, F}, options);
    const int64_t half = E / 2;
    at::Tensor angle = at::empty({R, half}, at::kFloat);
    float* a = angle.mutable_data_ptr<float>();
    for (int64_t r = 0; r < R; r++) {
      for (int64_t i = 0; i < half; i++) a[r * half + i] = static_cast<float>(s.positions[r]) * m.config.inv_freq[i];
    }
    cos_R = at::cos(angle).mul_(m.config.attention_factor);
    sin_R = at::sin(angle).mul_(m.config.attention_factor);
  }

  void each_row(int64_t grain, const std::function<void(int64_t)>& f) const {
    at::parallel_for(0, R, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; r++) f(r);
    });
  }

  void norm(const at::Tensor& x, const at::Tensor& w) {
    const float *in = x.const_data_ptr<float>(), *weight = w.const_data_ptr<float>();
    float* out = normed.mutable_data_ptr<float>();
    const float eps = static_cast<float>(m.config.rms_norm_eps);
    each_row(16, [&](int64_t r) { kernel::rms_norm(out + r * D, in + r * D, weight, D, eps); });
  }

  // q/k norm, RoPE, and the row's key and value into the cache.
  void store_keys(const Layer& l, int64_t index) {
    const int64_t width = (H + 2 * K) * E, half = E / 2, B = c.block_size;
    float *x = qkv.mutable_data_ptr<float>(), *keys = c.keys[index].mutable_data_ptr<float>(), *values = c.values[index].mutable_data_ptr<float>();
    const float *cosine = cos_R.const_data_ptr<float>(), *sine = sin_R.const_data_ptr<float>();
    const float eps = static_cast<float>(m.config.rms_norm_eps), scale = static_cast<float>(1 / std::sqrt(static_cast<double>(E)));
    each_row(8, [&](int64_t r) {
      float* row = x + r * width;
      if (m.config.qk_norm) {
        for (int64_t h = 0; h < H + K; h++) {
          kernel::rms_norm(row + h * E, row + h * E, (h < H ? l.q_norm_E : l.k_norm_E).const_data_ptr<float>(), E, eps);
        }
      }
      kernel::rope(row, cosine + r * half, sine + r * half, H + K, E, 1);
      kernel::scale_to(row, row, scale, H * E);
      const int64_t position = s.positions[r], slot = position % B;
      const int64_t block = s.block_table[s.sequence[r] * s.max_blocks + position / B];
      for (int64_t k = 0; k < K; k++) {
        float *to_key = keys + (block * K + k) * E * B + slot, *to_value = values + ((block * K + k) * B + slot) * E;
        const float *key = row + (H + k) * E, *value = row + (H + K + k) * E;
        for (int64_t e = 0; e < E; e++) to_key[e * B] = key[e];
        kernel::scale_to(to_value, value, 1, E);
      }
    });
  }

  void attention(int64_t index) {
    const int64_t width = (H + 2 * K) * E, G = H / K, B = c.block_size, stride = K * E * B;
    const float *q = qkv.const_data_ptr<float>(), *keys = c.keys[index].const_data_ptr<float>(), *values = c.values[index].const_data_ptr<float>();
    float* out = attn.mutable_data_ptr<float>();
    at::parallel_for(0, R * K, 2, [&](int64_t begin, int64_t end) {
      std::vector<float> scratch;
      for (int64_t unit = begin; unit < end; unit++) {
        const int64_t r = unit / K, k = unit % K, n = s.positions[r] + 1;
        scratch.resize(std::max<size_t>(scratch.size(), G * ((n + B - 1) / B) * B));
        kernel::attend(out + (r * H + k * G) * E, q + r * width + k * G * E, G, E, keys + k * E * B, values + k * E * B,
                       stride, B, s.block_table + s.sequence[r] * s.max_blocks, n, scratch.data());
      }
    });
  }

  at::Tensor hidden() {
    at::Tensor x = at::empty({R, D}, m.flat.options());
    {
      const float* table = m.embed_VD.const_data_ptr<float>();
      float* out = x.mutable_data_ptr<float>();
      each_row(16, [&](int64_t r) { std::copy_n(table + s.tokens[r] * D, D, out + r * D); });
    }
    for (int64_t i = 0; i < m.config.num_layers; i++) {
      const Layer& l = m.layers[i];
      norm(x, l.input_norm_D);
      linear(qkv, normed, l.qkv_weight, l.qkv_bias, det);
      store_keys(l, i);
      attention(i);
      linear(proj, attn, l.o_weight_DHE, l.o_bias, det);
      x.add_(proj);
      norm(x, l.post_norm_D);
      linear(gate_up, normed, l.gate_up_weight, l.gate_up_bias, det);
      const float* gu = gate_up.const_data_ptr<float>();
      float* a = act.mutable_data_ptr<float>();
      each_row(4, [&](int64_t r) { kernel::swiglu(a + r * F, gu + r * 2 * F, F); });
      linear(proj, act, l.down_weight_DF, l.down_bias, det);
      x.add_(proj);
    }
    return x;
  }

  void run(int32_t* sampled, float* logprobs) {
    const at::Tensor x = hidden();
    const int64_t O = s.num_outputs, V = m.config.vocab_size;
    if (O == 0) return;
    at::Tensor rows = at::empty({O, D}, m.flat.options());
    const float *in = x.const_data_ptr<float>(), *weight = m.norm_D.const_data_ptr<float>();
    float* out = rows.mutable_data_ptr<float>();
    for (int64_t i = 0; i < O; i++) {
      kernel::rms_norm(out + i * D, in + s.output_row[i] * D, weight, D, static_cast<float>(m.config.rms_norm_eps));
    }
    const at::Tensor logits = at::empty({O, V}, m.flat.options());
    linear(logits, rows, m.head_VD, {}, det);
    float* z = logits.mutable_data_ptr<float>();
    at::parallel_for(0, O, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const Sampled got = sample(z + i * V, V, {s.temperature[i], s.top_p[i], s.top_k[i], s.min_p[i], s.seed[i], s.counter[i]});
        sampled[i] = got.token;
        logprobs[i] = got.logprob;
      }
    });
  }

  af_cache& c;
  const af_model& m;
  const af_step& s;
  int64_t R, D, F, H, K, E;
  bool det;
  at::Tensor normed, qkv, attn, proj, gate_up, act, cos_R, sin_R;
};

}  // namespace
}  // namespace af

extern "C" {

af_error* af_cache_new(af_model* m, int64_t num_blocks, int64_t block_size, af_cache** out) {
  return af::guard([&] {
    if (num_blocks < 1 || block_size < 8 || block_size % 8 != 0) throw af::InputError("cache: it needs at least one block, of a multiple of 8 tokens");
    if (!m->device.is_cpu()) throw af::InputError("cache: the local engine runs on the CPU; use engine: vllm on a GPU");
    auto c = std::make_unique<af_cache>();
    c->model = m->shared_from_this();
    c->num_blocks = num_blocks;
    c->block_size = block_size;
    const auto& config = m->config;
    for (int64_t i = 0; i < config.num_layers; i++) {
      c->keys.push_back(at::zeros({num_blocks, config.num_kv_heads, config.head_dim, block_size}, m->flat.options()));
      c->values.push_back(at::zeros({num_blocks, config.num_kv_heads, block_size, config.head_dim}, m->flat.options()));
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
    at::NoGradGuard no_grad;
    af::check_step(*c, *s);
    af::Forward(*c, *s).run(sampled, logprobs);
  });
}

}  // extern "C"
