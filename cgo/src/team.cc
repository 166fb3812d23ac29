#include "team.h"

#include <algorithm>

namespace af {
namespace {

constexpr uint64_t kMask = (1 << 20) - 1;
constexpr int64_t kPiecesPerThread = 6;  // enough to even out, few enough to keep neighbours together
constexpr int kSpins = 4000;             // about 50 microseconds: loops of a step follow each other closely

uint64_t pieces_of(uint64_t state) { return state >> 20 & kMask; }
uint64_t next_of(uint64_t state) { return state & kMask; }

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Team::Team(int threads) {
  try {
    for (int i = 1; i < threads; i++) helpers_.emplace_back([this] { help(); });
  } catch (const std::exception&) {  // the system gives no more threads: fewer do
  }
}

Team::~Team() {
  stop_ = true;
  state_.fetch_add(uint64_t{1} << 40);
  state_.notify_all();
  for (auto& t : helpers_) t.join();
}

void Team::run_pieces(int64_t n, int64_t grain, Function f, const void* context) {
  function_ = f;
  context_ = context;
  n_ = n;
  piece_ = std::max({grain, (n + size() * kPiecesPerThread - 1) / (size() * kPiecesPerThread), (n >> 19) + 1});
  const int64_t pieces = (n + piece_ - 1) / piece_;
  done_.store(0, std::memory_order_relaxed);
  error_ = nullptr;
  const uint64_t generation = (state_.load(std::memory_order_relaxed) >> 40) + 1;
  state_.store(generation << 40 | static_cast<uint64_t>(pieces) << 20, std::memory_order_release);
  state_.notify_all();
  while (take_piece()) {
  }
  for (int spins = 0; done_.load(std::memory_order_acquire) != pieces; spins++) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();  // a helper has a piece and waits for a processor
    }
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
}

bool Team::take_piece() {
  uint64_t state = state_.load(std::memory_order_acquire);
  do {
    if (next_of(state) >= pieces_of(state)) return false;
  } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire));
  const int64_t begin = static_cast<int64_t>(next_of(state)) * piece_;
  try {
    function_(context_, begin, std::min(n_, begin + piece_));
  } catch (...) {
    std::lock_guard<std::mutex> lock(error_mutex_);
    if (error_ == nullptr) error_ = std::current_exception();
  }
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

void Team::help() {
  int spins = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    if (take_piece()) {
      spins = 0;
    } else if (++spins < kSpins) {
      pause();
    } else {
      const uint64_t seen = state_.load(std::memory_order_acquire);
      if (next_of(seen) >= pieces_of(seen) && !stop_.load(std::memory_order_acquire))
        state_.wait(seen, std::memory_order_acquire);
      spins = 0;
    }
  }
}

}  // namespace af
