#include "pool.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace af {
namespace {

constexpr int64_t kHuge = 2 << 20;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

void* allocate(int64_t bytes) {
  const int64_t alignment = bytes >= kHuge ? kHuge : 64;
  void* p = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(round_up(bytes, alignment)));
  if (p == nullptr) throw std::bad_alloc();
  advise_huge(p, bytes);
  return p;
}

}  // namespace

void advise_huge(void* memory, int64_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  const auto start = round_up(reinterpret_cast<intptr_t>(memory), kHuge),
             end = reinterpret_cast<intptr_t>(memory) + bytes;
  if (end - start >= kHuge) madvise(reinterpret_cast<void*>(start), static_cast<size_t>(end - start), MADV_HUGEPAGE);
#else
  (void)memory, (void)bytes;
#endif
}

Pool::~Pool() {
  for (auto& [bytes, block] : free_) std::free(block.memory);
}

at::Tensor Pool::take(at::IntArrayRef sizes) {
  int64_t bytes = 4;
  for (int64_t d : sizes) bytes *= d;
  bytes = round_up(std::max<int64_t>(bytes, 1), bytes >= 8 * kHuge ? kHuge : 4096);
  void* memory = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = free_.lower_bound(bytes);
    if (found != free_.end() && found->first <= bytes + bytes / 4) {
      bytes = found->first;
      memory = found->second.memory;
      free_.erase(found);
    }
  }
  if (memory == nullptr) memory = allocate(bytes);
  auto self = shared_from_this();
  return at::from_blob(
      memory, sizes, [self, bytes](void* p) { self->give(p, bytes); }, at::kFloat);
}

void Pool::give(void* memory, int64_t bytes) noexcept {
  try {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.emplace(bytes, Block{memory, step_});
  } catch (...) {
    std::free(memory);
  }
}

void Pool::begin_step() {
  std::lock_guard<std::mutex> lock(mutex_);
  step_++;
  for (auto it = free_.begin(); it != free_.end();) {
    if (it->second.used + kKeep < step_) {
      std::free(it->second.memory);
      it = free_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace af
