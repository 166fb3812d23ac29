// Inference on a device: the trainer's forward, operation by operation and in the model's type, over the rows of a
// step. Only attention differs: keys and values lie in the blocks of a cache.
//
// A row writes its key and value first and then sees the tokens 0..position of its sequence, as on the CPU
// (decode_host.cc). A run of rows, the piece of a prompt, is a sequence of one attention call of variable lengths,
// whose keys are gathered from the cache; single rows, the last tokens of sequences that are being continued, read the
// blocks where they lie (paged.h), and so does every row where the model has no such call. Steps of such rows alone are
// those of single_rows.h.
//
// The weights are those that the trainer's forwards read, an adapter beside them: nothing is packed or merged after an
// update. The logits come to host memory, where all engines' tokens are sampled by the same code.
//
// libtorch's products on CUDA have kernels by the number of rows: a row's bits depend on how many there are.
#include <ATen/core/grad_mode.h>

#include <bit>

#include "decode.h"
#include "paged.h"
#include "profile.h"
#include "single_rows.h"

namespace af {
namespace {

// Rows of a step that follow each other in one sequence: first .. first + length.
struct RowRun {
  int64_t first, length;
};

std::vector<RowRun> runs_of(const af_step& s) {
  std::vector<RowRun> out;
  for (int64_t r = 0; r < s.num_rows; r++) {
    const bool follows = r > 0 && s.sequence[r] == s.sequence[r - 1] && s.positions[r] == s.positions[r - 1] + 1;
    if (follows) {
      out.back().length++;
    } else {
      out.push_back({r, 1});
    }
  }
  return out;
}

// The attention of one step, for every layer.
class StepAttention : public Cached {
 public:
  StepAttention(const CacheShape& shape, const af_step& s, const std::vector<at::Tensor>& kv)
      : m(*shape.model), kv_(kv), H(m.config.num_heads), K(m.config.num_kv_heads), E(m.config.head_dim) {
    slot_R_ = to_device(m, shape.slots(s));
    std::vector<int32_t> single, sequence, count, cu_q{0}, cu_k{0};
    std::vector<int64_t> many, key;
    Varlen& v = runs_.varlen;
    for (const RowRun& run : runs_of(s)) {
      const int64_t last = run.first + run.length - 1, keys = s.positions[last] + 1;
      if (use_varlen(m) && run.length >= kLeastRun && static_cast<int64_t>(key.size()) + keys <= kMostGathered) {
        for (int64_t r = run.first; r <= last; r++) many.push_back(r);
        for (int64_t p = 0; p < keys; p++) key.push_back(shape.slot(s, s.sequence[last], p));
        cu_q.push_back(static_cast<int32_t>(many.size())), cu_k.push_back(static_cast<int32_t>(key.size()));
        v.max_q = std::max(v.max_q, run.length), v.max_k = std::max(v.max_k, keys);
        continue;
      }
      for (int64_t r = run.first; r <= last; r++) {
        single.push_back(static_cast<int32_t>(r)), sequence.push_back(s.sequence[r]);
        count.push_back(s.positions[r] + 1);
        singles_.most = std::max<int64_t>(singles_.most, count.back());
      }
    }
    many_ = static_cast<int64_t>(many.size());
    if (many_ > 0) {
      v.cu_q = to_device(m, cu_q), v.cu_k = to_device(m, cu_k), v.key_token_A = to_device(m, key);
      runs_.share = share_of(m.config, 0, 1);
      if (many_ < s.num_rows) many_row_ = to_device(m, many);
    }
    if (single.empty()) return;
    singles_.row_N = to_device(m, single), singles_.sequence_N = to_device(m, sequence),
    singles_.count_N = to_device(m, count);
    singles_.table_SB =
        to_device(m, at::from_blob(const_cast<int32_t*>(s.block_table), {s.num_sequences, s.max_blocks}, at::kInt));
    singles_.block_size = shape.block_size;
  }

  void attend(int64_t i, const at::Tensor& qkv, const at::Tensor& out) const override {
    const StageTimer timer(Stage::kAttention, m.device);
    const at::Tensor &kv = kv_[static_cast<size_t>(i)], q = qkv.narrow(1, 0, H * E);
    kv.index_copy_(0, slot_R_, qkv.narrow(1, H * E, 2 * K * E));
    if (many_ > 0) {
      const bool all = !many_row_.defined();
      const at::Tensor q_many = all ? q : q.index_select(0, many_row_), lse = m.scratch({many_, H});
      const at::Tensor out_many = all ? out : m.activation({many_, H * E});
      attention_varlen(m, runs_, q_many, kv, out_many, lse);
      if (!all) out.index_copy_(0, many_row_, out_many);
    }
    if (singles_.row_N.defined()) attend_paged(m, singles_, q, kv, out);
  }

 private:
  static constexpr int64_t kLeastRun = 8;            // rows of a run for which its keys are gathered
  static constexpr int64_t kMostGathered = 1 << 16;  // keys of all runs: trainer/memory counts their copy
  const af_model& m;
  const std::vector<at::Tensor>& kv_;
  const int64_t H, K, E;
  at::Tensor slot_R_;    // where each row's key and value go
  int64_t many_ = 0;     // rows of runs
  at::Tensor many_row_;  // [many_] which they are; undefined: all of the step
  Plan runs_;            // its varlen and share alone
  PagedRows singles_;
};

class DeviceDecoder : public Decoder {
 public:
  explicit DeviceDecoder(const CacheShape& shape) : shape_(shape), singles_(shape, kv_) {
    const af_model& m = *shape.model;
    check_type();
    const int64_t slots = shape.num_blocks * shape.block_size + 1;  // the last takes what is not to be kept
    for (int64_t i = 0; i < m.config.num_layers; i++)
      kv_.push_back(at::empty({slots, 2 * m.config.num_kv_heads * m.config.head_dim},
                              at::TensorOptions(m.device).dtype(m.dtype)));
  }

  at::Tensor run(const af_step& s, Team&) override {
    check_type();
    at::NoGradGuard mode;
    af_model& m = *shape_.model;
    // Before anything is launched, so that a step that gets no memory leaves nothing that reads its inputs.
    if (m.device.is_cuda()) host_room(s.num_outputs * m.config.vocab_size);
    at::Tensor logits;
    if (singles_.takes(s)) {
      const std::lock_guard<std::mutex> lock(deterministic_mutex());
      logits = singles_.run(s);
    } else {
      Plan plan;
      plan.T = plan.O = s.num_rows, plan.N = s.num_outputs;
      plan.share = share_of(m.config, 0, 1);
      plan.tokens_O = to_device(m, std::vector<int64_t>(s.tokens, s.tokens + s.num_rows));
      plan.row_token_N = to_device(m, std::vector<int64_t>(s.output_row, s.output_row + s.num_outputs));
      rotate(m, plan, std::vector<int64_t>(s.positions, s.positions + s.num_rows));
      const StepAttention attention(shape_, s, kv_);
      plan.cached = &attention;
      const std::lock_guard<std::mutex> lock(deterministic_mutex());
      logits = plan_logits(m, plan);
    }
    return on_host(logits);
  }

  bool batch_invariant() const override { return false; }

 private:
  void check_type() const {
    const af_model& m = *shape_.model;
    if (shape_.half == (m.dtype == at::kBFloat16)) return;
    throw InputError("cache: dtype is " + std::string(shape_.half ? "bfloat16" : "float32") + ", and the model on " +
                     m.device.str() + " computes in " + (shape_.half ? "float32" : "bfloat16") +
                     ": on a device they are the same");
  }

  // Pinned memory for n numbers, which a CUDA device writes to at its full rate. It stays for the next step.
  at::Tensor host_room(int64_t n) {
    if (!host_.defined() || host_.numel() < n) {
      host_ = at::Tensor();
      const auto size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));  // as pinned blocks are anyway
      host_ = at::empty({size}, at::TensorOptions(at::kFloat).pinned_memory(true));
    }
    return host_.narrow(0, 0, n);
  }
  at::Tensor on_host(const at::Tensor& logits) {
    if (!logits.defined() || !logits.is_cuda()) return logits;
    return host_room(logits.numel()).view(logits.sizes()).copy_(logits);
  }

  const CacheShape shape_;
  std::vector<at::Tensor> kv_;  // per layer [slots, 2KE]: the K heads of a key, then those of its value
  at::Tensor host_;             // logits of the largest step so far
  SingleRows singles_;
};

}  // namespace

std::unique_ptr<Decoder> device_decoder(const CacheShape& shape) { return std::make_unique<DeviceDecoder>(shape); }

}  // namespace af
