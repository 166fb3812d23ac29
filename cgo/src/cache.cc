// The paged cache: checks the steps of an inference, has a decoder compute their rows, and samples from the logits.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cmath>

#include "decode.h"
#include "exchange.h"
#include "sample.h"
#include "train.h"

struct af_cache {
  af::CacheShape shape;
  std::unique_ptr<af::Decoder> decoder;
  int threads = 0;  // that the team was made for
  std::unique_ptr<af::Team> team;
};

namespace af {

std::vector<bool> CacheShape::writers(const af_step& s) const {
  std::vector<bool> first(static_cast<size_t>(s.num_rows)),
      written(static_cast<size_t>(num_blocks * block_size), false);
  for (int64_t r = 0; r < s.num_rows; r++) {
    const size_t at = static_cast<size_t>(slot(s, s.sequence[r], s.positions[r]));
    first[static_cast<size_t>(r)] = !written[at];
    written[at] = true;
  }
  return first;
}

std::vector<int64_t> CacheShape::slots(const af_step& s) const {
  const std::vector<bool> writes = writers(s);
  std::vector<int64_t> out(static_cast<size_t>(s.num_rows), num_blocks * block_size);
  for (int64_t r = 0; r < s.num_rows; r++) {
    if (writes[static_cast<size_t>(r)]) out[static_cast<size_t>(r)] = slot(s, s.sequence[r], s.positions[r]);
  }
  return out;
}

namespace {

void check_range(const char* what, int64_t i, int64_t value, int64_t end) {
  if (value >= 0 && value < end) return;
  throw InputError(std::string("step: ") + what + "[" + std::to_string(i) + "] is " + std::to_string(value) +
                   ", allowed are 0 to " + std::to_string(end - 1));
}

void check_step(const CacheShape& c, const af_step& s) {
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

// Samples the outputs of a step from their logits.
class Outputs {
 public:
  Outputs(const af_step& step, int64_t vocabulary, const at::Tensor& logits)
      : s(step), V(vocabulary), width(logits.size(1)), rows(logits.mutable_data_ptr<float>()) {}

  // Fills what output i gives.
  void take(int64_t i, int32_t* sampled, float* logprobs) const {
    float* row = rows + i * width;
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

 private:
  // Makes the edits of output i in its logits and excludes the tokens that are not allowed. False: there is neither.
  bool edit(int64_t i, float* row) const {
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
    const double log_total = raw ? log_sum(row, V) : static_cast<double>(row[got.token]) - got.logprob;
    s.reported[i] = raw ? static_cast<float>(std::min(0.0, row[got.token] - log_total)) : got.logprob;
    if (s.max_top == 0) return;
    std::fill_n(s.top_ids + i * s.max_top, s.max_top, -1);
    if (k > 0) top(row, V, k, log_total, s.top_ids + i * s.max_top, s.top_logprobs + i * s.max_top);
  }

  const af_step& s;
  const int64_t V, width;
  float* const rows;
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
    auto c = std::make_unique<af_cache>();
    c->shape = {m->shared_from_this(), num_blocks, block_size, dtype == AF_BF16};
    c->decoder = af::use_kernels(*m) ? af::host_decoder(c->shape) : af::device_decoder(c->shape);
    af::live++;
    *out = c.release();
  });
}

void af_cache_free(af_cache* c) {
  if (c == nullptr) return;
  delete c;
  af::live--;
}

int af_cache_batch_invariant(const af_cache* c) { return c->decoder->batch_invariant() ? 1 : 0; }

af_error* af_cache_step(af_cache* c, const af_step* s, int32_t* sampled, float* logprobs) {
  return af::guard([&] {
    at::AutoDispatchBelowAutograd below;
    af::check_step(c->shape, *s);
    af::settle(*c->shape.model);
    const int threads = at::get_num_threads();  // libtorch's number for the calling thread
    if (c->threads != threads) {
      c->team = std::make_unique<af::Team>(threads);
      c->threads = threads;
    }
    const at::Tensor logits = c->decoder->run(*s, *c->team);
    if (s->num_outputs == 0) return;
    const af::Outputs outputs(*s, c->shape.model->config.vocab_size, logits);
    c->team->run(s->num_outputs, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) outputs.take(i, sampled, logprobs);
    });
  });
}

}  // extern "C"
