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

#if defined(__SANITIZE_ADDRESS__)  // knows the heap's bounds, and no mapping's
void* allocate(int64_t bytes) {
  void* p = std::aligned_alloc(4096, static_cast<size_t>(bytes));
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void release(void* memory, int64_t) noexcept { std::free(memory); }
#else
// Whole mappings, not the heap: of what is freed there between blocks in use nothing goes back to the system.
void* allocate(int64_t bytes) {
  const int64_t extra = bytes >= kHuge ? kHuge : 0;  // to begin at a huge page
  void* p =
      mmap(nullptr, static_cast<size_t>(bytes + extra), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  if (extra == 0) return p;
  const auto at = reinterpret_cast<intptr_t>(p), start = static_cast<intptr_t>(round_up(at, kHuge));
  if (start > at) munmap(p, static_cast<size_t>(start - at));
  if (at + extra > start) munmap(reinterpret_cast<void*>(start + bytes), static_cast<size_t>(at + extra - start));
  advise_huge(reinterpret_cast<void*>(start), bytes);
  return reinterpret_cast<void*>(start);
}

void release(void* memory, int64_t bytes) noexcept { munmap(memory, static_cast<size_t>(bytes)); }
#endif

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
  for (auto& [bytes, block] : free_) release(block.memory, bytes);
}

void Pool::drop(std::multimap<int64_t, Block>::iterator at) noexcept {
  held_ -= at->first;
  release(at->second.memory, at->first);
  free_.erase(at);
}

bool Pool::has_room(int64_t bytes) const noexcept {
  const int64_t most = std::max(most_, used_ + bytes);
  return held_ + bytes <= most + most / 8;
}

void Pool::make_room(int64_t bytes) noexcept {
  while (!has_room(bytes) && !free_.empty()) {
    auto oldest = free_.begin();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second.used < oldest->second.used) oldest = it;
    }
    drop(oldest);
  }
}

at::Tensor Pool::take(at::IntArrayRef sizes, at::ScalarType type) {
  auto bytes = static_cast<int64_t>(at::elementSize(type));
  for (int64_t d : sizes) bytes *= d;
  bytes = round_up(std::max<int64_t>(bytes, 1), bytes >= 8 * kHuge ? kHuge : 4096);
  void* memory = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = free_.lower_bound(bytes);
    if (found != free_.end() && found->first <= (has_room(bytes) ? bytes + bytes / 4 : 2 * bytes)) {
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
      memory, sizes, [self, bytes](void* p) { self->give(p, bytes); }, type);
}

void Pool::give(void* memory, int64_t bytes) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  used_ -= bytes;
  try {
    free_.emplace(bytes, Block{memory, step_});
  } catch (...) {
    held_ -= bytes;
    release(memory, bytes);
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

void Pool::clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  while (!free_.empty()) drop(free_.begin());
  most_ = used_;
}

}  // namespace af
