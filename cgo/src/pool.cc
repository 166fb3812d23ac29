#include "pool.h"

#include <sys/mman.h>

#include <algorithm>
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

void Pool::drop(std::multimap<int64_t, Block>::iterator at) noexcept {
  held_ -= at->first;
  std::free(at->second.memory);
  free_.erase(at);
}

void Pool::make_room(int64_t bytes) noexcept {
  most_ = std::max(most_, used_ + bytes);
  while (held_ + bytes > most_ && !free_.empty()) {
    auto oldest = free_.begin();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second.used < oldest->second.used) oldest = it;
    }
    drop(oldest);
  }
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
    } else {
      make_room(bytes);
      memory = allocate(bytes);
      held_ += bytes;
    }
    used_ += bytes;
    most_ = std::max(most_, used_);
  }
  auto self = shared_from_this();
  return at::from_blob(
      memory, sizes, [self, bytes](void* p) { self->give(p, bytes); }, at::kFloat);
}

void Pool::give(void* memory, int64_t bytes) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  used_ -= bytes;
  try {
    free_.emplace(bytes, Block{memory, step_});
  } catch (...) {
    held_ -= bytes;
    std::free(memory);
  }
}

void Pool::begin_step() {
  std::lock_guard<std::mutex> lock(mutex_);
  step_++;
  for (auto it = free_.begin(); it != free_.end();) {
    auto at = it++;
    if (at->second.used + kKeep < step_) drop(at);
  }
}

}  // namespace af
