#include "single_rows.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <iostream>
#include <numeric>
#include <string_view>

#include "cuda/graph.h"
#include "cuda/scripted.h"
#include "memory.h"
#include "paged.h"
#include "profile.h"

namespace af {
namespace {

constexpr int64_t kMostRows = 256;      // beyond, launches are no longer what a step waits for
constexpr int64_t kLeastKeys = 512;     // of the smallest size
constexpr int64_t kUnrecorded = 1;      // steps of a size before its launches are recorded
constexpr int64_t kMostBetween = 4096;  // steps of a size from one recording that failed to the next
constexpr int64_t kLong = 8, kInt = 4;  // bytes

struct {
  std::atomic<int64_t> made, failed;
} recordings;  // of all caches

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Rows of the size for n: 1, 2, 4, 8, 16 .. 64, 80 .. 128, 160 .. 256.
int64_t rows_for(int64_t n) {
  if (n <= 8) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
  return round_up(n, n <= 64 ? 8 : n <= 128 ? 16 : 32);
}

// libtorch's allocator has an error of its own for it; CUDA's libraries say so in the text alone, our launches by the
// driver's name of it.
bool is_short_of_memory(const std::exception& e) {
  const std::string_view why = e.what();
  return dynamic_cast<const c10::OutOfMemoryError*>(&e) != nullptr || why.find("out of memory") != why.npos ||
         why.find("OUT_OF_MEMORY") != why.npos || why.find("ALLOC_FAILED") != why.npos;
}

}  // namespace

// The steps of one size: their inputs, and their launches once they are recorded.
class SingleRows::Step : public Cached {
 public:
  Step(const SingleRows& of, const Size& size)
      : m(*of.shape_.model),
        shape_(of.shape_),
        kv_(of.kv_),
        N(size.rows),
        B((size.keys + shape_.block_size - 1) / shape_.block_size),
        cos_PE_(of.rotations_.cos_T.narrow(0, 0, size.keys)),
        sin_PE_(of.rotations_.sin_T.narrow(0, 0, size.keys)) {
    const auto on = at::TensorOptions(m.device);
    inputs_ = at::empty({bytes()}, on.dtype(at::kByte));
    const auto longs = [&](int64_t i) { return inputs_.narrow(0, i * N * kLong, N * kLong).view(at::kLong); };
    const auto ints = [&](int64_t at, int64_t n) {
      return inputs_.narrow(0, 4 * N * kLong + at * kInt, n * kInt).view(at::kInt);
    };
    plan_.T = plan_.O = plan_.N = N;
    plan_.share = share_of(m.config, 0, 1);
    plan_.cached = this;
    plan_.tokens_O = longs(0), plan_.row_token_N = longs(1), slot_N_ = longs(2), position_N_ = longs(3);
    rows_.count_N = ints(0, N);
    rows_.table_SB = ints(N, N * B).view({N, B});
    rows_.row_N = rows_.sequence_N = at::arange(N, on.dtype(at::kInt));
    rows_.block_size = shape_.block_size, rows_.most = size.keys;
  }

  int64_t bytes() const { return 4 * N * kLong + (N + N * B) * kInt; }

  // Puts the inputs of s, which host has room for, on the device. Rows beyond those of s see one key, and keep none.
  void fill(const af_step& s, const at::Tensor& host) {
    auto* at = static_cast<std::byte*>(host.mutable_data_ptr());
    auto* longs = reinterpret_cast<int64_t*>(at);
    int64_t *token = longs, *output = longs + N, *slot = longs + 2 * N, *position = longs + 3 * N;
    auto *count = reinterpret_cast<int32_t*>(longs + 4 * N), *table = count + N;
    std::memset(at, 0, static_cast<size_t>(bytes()));
    std::fill_n(slot, N, shape_.num_blocks * shape_.block_size);
    std::ranges::copy(shape_.slots(s), slot);
    std::fill_n(count, N, 1);
    for (int64_t r = 0; r < s.num_rows; r++) {
      token[r] = s.tokens[r], position[r] = s.positions[r], count[r] = s.positions[r] + 1;
      const int64_t blocks = s.positions[r] / shape_.block_size + 1;
      std::copy_n(s.block_table + s.sequence[r] * s.max_blocks, blocks, table + r * B);
    }
    std::copy_n(s.output_row, s.num_outputs, output);
    inputs_.copy_(host.narrow(0, 0, bytes()), /*non_blocking=*/true);
  }

  // The logits [N, V] of the inputs.
  at::Tensor compute() {
    plan_.cos_T = cos_PE_.index_select(0, position_N_), plan_.sin_T = sin_PE_.index_select(0, position_N_);
    const at::Tensor logits = plan_logits(m, plan_);
    plan_.cos_T = plan_.sin_T = at::Tensor();
    return logits;
  }

  void record(cuda::Recorder& recorder) {
    try {
      graph_ = recorder.record([this] { logits_ = compute(); });
    } catch (...) {
      logits_ = at::Tensor();
      throw;
    }
    // The memory is the graph's: let go here, other graphs may use it while this one does not run.
    if (m.device.is_cuda()) logits_ = at::from_blob(logits_.mutable_data_ptr(), logits_.sizes(), logits_.options());
  }
  bool recorded() const { return graph_ != nullptr; }
  // As compute, by the recorded launches; the logits are theirs, and those of the last replay of any step.
  at::Tensor replay() {
    graph_->replay();
    return logits_;
  }

  void attend(int64_t i, const at::Tensor& qkv, const at::Tensor& out) const override {
    const StageTimer timer(Stage::kAttention, m.device);
    const int64_t q = m.config.num_heads * m.config.head_dim, both = 2 * m.config.num_kv_heads * m.config.head_dim;
    const at::Tensor& kv = kv_[static_cast<size_t>(i)];
    kv.index_copy_(0, slot_N_, qkv.narrow(1, q, both));
    attend_paged(m, rows_, qkv.narrow(1, 0, q), kv, out);
  }

  int64_t runs = 0, due = kUnrecorded;  // since the last recording that failed; how many there are before the next

 private:
  af_model& m;
  const CacheShape& shape_;
  const std::vector<at::Tensor>& kv_;
  const int64_t N, B;  // rows; blocks of a sequence
  const at::Tensor cos_PE_, sin_PE_;
  at::Tensor inputs_;               // bytes: all that follow, but for row_N and sequence_N
  at::Tensor slot_N_, position_N_;  // where a row's key and value go; its place in its sequence
  Plan plan_;
  PagedRows rows_;
  std::unique_ptr<cuda::Graph> graph_;
  at::Tensor logits_;  // of graph_
};

SingleRows::SingleRows(const CacheShape& shape, const std::vector<at::Tensor>& kv)
    : shape_(shape), kv_(kv), recorder_(cuda::recorder(shape.model->device)) {}
SingleRows::~SingleRows() = default;

bool SingleRows::takes(const af_step& s) const {
  if (s.num_rows > kMostRows || s.num_outputs < 1 || s.num_outputs > rows_for(s.num_rows)) return false;
  std::vector<bool> seen(static_cast<size_t>(s.num_sequences), false);
  for (int64_t r = 0; r < s.num_rows; r++) {
    const auto sequence = static_cast<size_t>(s.sequence[r]);
    if (seen[sequence]) return false;
    seen[sequence] = true;
  }
  return true;
}

SingleRows::Size SingleRows::size_of(const af_step& s) const {
  const int64_t most = *std::max_element(s.positions, s.positions + s.num_rows) + 1;
  const auto keys = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(most, kLeastKeys))));
  return {rows_for(s.num_rows), keys};
}

SingleRows::Weights SingleRows::weights() const {
  const auto place = [](const at::Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; };
  af_model& m = *shape_.model;
  const Parameters& p = m.weights();
  return {place(p.flat), place(p.frozen), place(p.head_VD), m.path};
}

SingleRows::Step& SingleRows::step_of(const Size& size) {
  std::unique_ptr<Step>& step = steps_[size];
  if (step != nullptr) return *step;
  if (!rotations_.cos_T.defined() || rotations_.cos_T.size(0) < size.keys) {  // earlier steps keep theirs
    std::vector<int64_t> positions(static_cast<size_t>(size.keys));
    std::iota(positions.begin(), positions.end(), 0);
    rotations_.T = size.keys;
    rotate(*shape_.model, rotations_, positions);
  }
  auto made = std::make_unique<Step>(*this, size);
  if (!inputs_.defined() || inputs_.numel() < made->bytes())
    inputs_ = at::empty({made->bytes()}, at::TensorOptions(at::kByte).pinned_memory(shape_.model->device.is_cuda()));
  step = std::move(made);  // only now: a step that is found in steps_ has room in inputs_
  return *step;
}

void SingleRows::record(Step& step) {
  try {
    step.record(*recorder_);
    recordings.made++;
  } catch (const std::exception& e) {
    recordings.failed++;
    // While launches are recorded libtorch frees no cached memory: later there may be more.
    if (is_short_of_memory(e)) {
      step.runs = 0, step.due = std::min(kMostBetween, 2 * step.due);
      return;
    }
    const std::string why = e.what();
    std::cerr << "agentfly: the launches of decode steps cannot be recorded on " << shape_.model->device.str() << " ("
              << why.substr(0, why.find('\n')) << "): each is made anew, which is slower\n";
    recorder_ = nullptr;
  }
}

at::Tensor SingleRows::run(const af_step& s) {
  const Weights now = weights();
  if (now != recorded_) steps_.clear();
  recorded_ = now;
  Step& step = step_of(size_of(s));
  try {
    step.fill(s, inputs_);
    // With fsdp the weights come from other ranks; no machine with two GPUs has tried whether graphs hold there.
    const bool whole = recorder_ != nullptr && shape_.model->exchange == nullptr;
    if (whole && !step.recorded() && step.runs++ >= step.due) record(step);
    return (whole && step.recorded() ? step.replay() : step.compute()).narrow(0, 0, s.num_outputs);
  } catch (...) {
    try {
      synchronize(shape_.model->device);  // the next step writes to inputs_, which may be on their way
    } catch (...) {                       // then nothing is any more
    }
    throw;
  }
}

}  // namespace af

extern "C" void af_cuda_recordings(int64_t* recorded, int64_t* failed) {
  *recorded = af::recordings.made;
  *failed = af::recordings.failed;
}
extern "C" void af_cuda_fail_recordings(int64_t count) { af::cuda::fail_recordings(count); }
