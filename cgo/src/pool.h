// Memory for intermediate tensors that is kept from step to step: fresh pages cost a tenth of a training step.
#pragma once
#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>

namespace af {

// Blocks of memory, on huge pages where the system has them. A tensor returns its block when the last reference goes.
// Blocks that wait for another use are freed before the pool would hold an eighth more than was ever in use at once:
// the next micro-batch is of another size. Without that eighth, tensors of different sizes would free each other's
// blocks where most is in use. Before one is freed, a block of up to twice the size serves. Thread-safe.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  ~Pool();
  at::Tensor take(at::IntArrayRef sizes, at::ScalarType type = at::kFloat);  // uninitialised
  // Begins a step: frees blocks that lay unused for the last kKeep steps.
  void begin_step();
  // Frees the blocks that no tensor uses.
  void clear();

 private:
  static constexpr int64_t kKeep = 8;
  struct Block {
    void* memory;
    int64_t used;  // step of the last use
  };
  void give(void* memory, int64_t bytes) noexcept;
  bool has_room(int64_t bytes) const noexcept;  // for a new block
  void make_room(int64_t bytes) noexcept;       // those that lay unused longest go first
  void drop(std::multimap<int64_t, Block>::iterator at) noexcept;

  std::mutex mutex_;
  std::multimap<int64_t, Block> free_;      // by bytes
  int64_t held_ = 0, used_ = 0, most_ = 0;  // bytes of all blocks, of those in use, the most that were in use
  int64_t step_ = 0;
};

// Huge pages for a long-lived buffer, where the system has them: fewer misses of the address cache in products.
void advise_huge(void* memory, int64_t bytes) noexcept;

}  // namespace af
