// The time of a training step's stages: see af_profile_start of af.h.
#pragma once
#include <atomic>
#include <chrono>

#include "internal.h"

namespace af {

enum class Stage {
  kEmbedding = AF_STAGE_EMBEDDING,
  kElementwise = AF_STAGE_ELEMENTWISE,
  kLinear = AF_STAGE_LINEAR,
  kAttention = AF_STAGE_ATTENTION,
  kHead = AF_STAGE_HEAD,
  kOptimizer = AF_STAGE_OPTIMIZER,
};

extern std::atomic<bool> profiling;

// The time from a timer's making to its end is its stage's. Of timers within each other only the outermost counts: the
// products of the head are the head's time. Costs one read of a flag while nothing is profiled.
class StageTimer {
 public:
  StageTimer(Stage stage, const at::Device& device)
      : on_(profiling.load(std::memory_order_relaxed)), stage_(stage), device_(device) {
    if (on_) begin();
  }
  ~StageTimer() {
    if (on_) end();
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  void begin();
  void end() noexcept;

  const bool on_;
  const Stage stage_;
  const at::Device device_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace af
