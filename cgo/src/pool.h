// Memory for intermediate tensors that is kept from step to step: fresh pages cost a tenth of a training step.
#pragma once
#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>

namespace af {

// Blocks of the CPU heap, on huge pages where the system has them. A tensor returns its block when the last reference
// goes. Thread-safe.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  ~Pool();
  at::Tensor take(at::IntArrayRef sizes);  // float32, uninitialised
  // Begins a step: frees blocks that lay unused for the last kKeep steps.
  void begin_step();

 private:
  static constexpr int64_t kKeep = 8;
  struct Block {
    void* memory;
    int64_t used;  // step of the last use
  };
  void give(void* memory, int64_t bytes) noexcept;

  std::mutex mutex_;
  std::multimap<int64_t, Block> free_;  // by bytes
  int64_t step_ = 0;
};

// Huge pages for a long-lived buffer, where the system has them: fewer misses of the address cache in products.
void advise_huge(void* memory, int64_t bytes) noexcept;

}  // namespace af
