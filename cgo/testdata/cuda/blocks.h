// Runs the source of a kernel on the CPU, a thread of CUDA a fiber with a stack of its own: it goes on until it meets a
// barrier or a shuffle, and from there when all that take part have come. Blocks run one after another.
//
// The order of threads and blocks is the caller's: a kernel whose result depends on it lacks a barrier, or two of its
// threads write the same place. Shared memory begins as NaN in each block. Errors are a barrier or a shuffle that not
// all threads reach, and a vector that does not begin at a multiple of its size. What this does not show: the bits of
// the device's own approximations and of fused additions, memory order between barriers, and speed.
//
// AF_NO_BARRIERS leaves the barriers out, for the test that two orders find that.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#define AF_DEVICE [[maybe_unused]] static inline
#define AF_KERNEL(threads) extern "C" void
#define AF_ALIGNED(pointer, bytes) blocks::check_aligned(pointer, bytes)
#define AF_DYNAMIC_SHARED(name) float* name = blocks::dynamic_shared
#define __shared__ static __attribute__((section("af_shared")))

namespace blocks {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

enum class Order { kAscending, kDescending, kRandom };

struct Launch {
  Index grid, block;
  size_t shared_floats = 0;
  Order order = Order::kAscending;
  unsigned seed = 0;
};

inline float* dynamic_shared = nullptr;

inline void check_aligned(const void* p, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0)
    throw std::runtime_error("a vector of " + std::to_string(bytes) + " bytes does not begin at a multiple of them");
}

}  // namespace blocks

inline blocks::Index threadIdx, blockIdx, blockDim, gridDim;

namespace blocks {

extern "C" char __start_af_shared[] __attribute__((visibility("hidden")));
extern "C" char __stop_af_shared[] __attribute__((visibility("hidden")));

// The threads of a block. Kernels reach it through the functions at the end of this file.
class Block {
 public:
  void run(const Launch& launch, const std::function<void()>& kernel) {
    launch_ = launch;
    kernel_ = &kernel;
    gridDim = launch.grid;
    blockDim = launch.block;
    shared_.assign(launch.shared_floats, 0);
    dynamic_shared = shared_.data();
    while (fibers_.size() < launch.block.x) fibers_.push_back(std::make_unique<Fiber>());
    random_.seed(launch.seed);
    for (unsigned b : ordered(launch.grid.x * launch.grid.y)) {
      blockIdx = {b % launch.grid.x, b / launch.grid.x, 0};
      std::fill(shared_.begin(), shared_.end(), NAN);
      std::memset(__start_af_shared, 0xff, __stop_af_shared - __start_af_shared);
      run_block();
    }
  }

  void barrier() { wait(At::kBarrier); }
  float shuffle_xor(float value, unsigned lane) {
    Fiber& f = *fibers_[current_];
    f.given = value, f.lane = lane;
    wait(At::kShuffle);
    return f.taken;
  }

 private:
  enum class At { kReady, kBarrier, kShuffle, kEnd };
  static constexpr size_t kStack = 64 << 10;

  struct Fiber {
    At at = At::kReady;
    bool begun = false;
    float given = 0, taken = 0;
    unsigned lane = 0;
    jmp_buf here;
    std::unique_ptr<char[]> stack{new char[kStack]};
    std::string error;
  };

  std::vector<unsigned> ordered(unsigned n) {
    std::vector<unsigned> out(n);
    std::iota(out.begin(), out.end(), 0u);
    if (launch_.order == Order::kDescending) std::reverse(out.begin(), out.end());
    if (launch_.order == Order::kRandom) std::shuffle(out.begin(), out.end(), random_);
    return out;
  }

  void run_block() {
    const unsigned n = launch_.block.x;
    for (unsigned i = 0; i < n; i++) fibers_[i]->at = At::kReady, fibers_[i]->begun = false;
    for (;;) {
      unsigned ended = 0, stopped = 0;
      for (unsigned i : ordered(n)) {
        if (fibers_[i]->at == At::kReady) resume(i);
        if (!fibers_[i]->error.empty()) throw std::runtime_error(std::exchange(fibers_[i]->error, ""));
        ended += fibers_[i]->at == At::kEnd;
        stopped += fibers_[i]->at == At::kBarrier;
      }
      if (ended == n) return;
      const bool shuffled = exchange(n);
      if (stopped == n) {
        for (unsigned i = 0; i < n; i++) fibers_[i]->at = At::kReady;
      } else if (!shuffled) {
        throw std::runtime_error("some threads wait at a barrier or a shuffle that others do not reach");
      }
    }
  }

  // Lets every warp go on whose threads are all at a shuffle.
  bool exchange(unsigned n) {
    bool any = false;
    for (unsigned first = 0; first + 32 <= n; first += 32) {
      bool all = true;
      for (unsigned i = 0; i < 32; i++) all = all && fibers_[first + i]->at == At::kShuffle;
      if (!all) continue;
      for (unsigned i = 0; i < 32; i++)
        fibers_[first + i]->taken = fibers_[first + (i ^ fibers_[first + i]->lane)]->given;
      for (unsigned i = 0; i < 32; i++) fibers_[first + i]->at = At::kReady;
      any = true;
    }
    return any;
  }

  // Runs thread i until it waits or ends.
  void resume(unsigned i) {
    current_ = i;
    threadIdx = {i, 0, 0};
    Fiber& f = *fibers_[i];
    if (_setjmp(scheduler_) != 0) return;
    if (f.begun) _longjmp(f.here, 1);
    f.begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = f.stack.get();
    context.uc_stack.ss_size = kStack;
    context.uc_link = nullptr;
    self_ = this;
    makecontext(&context, enter, 0);
    setcontext(&context);
  }

  static void enter() {
    Block& b = *self_;
    Fiber& f = *b.fibers_[b.current_];
    try {
      (*b.kernel_)();
    } catch (const std::exception& e) {
      f.error = e.what();
    }
    f.at = At::kEnd;
    _longjmp(b.scheduler_, 1);
  }

  void wait(At at) {
    Fiber& f = *fibers_[current_];
    f.at = at;
    if (_setjmp(f.here) == 0) _longjmp(scheduler_, 1);
  }

  static inline Block* self_ = nullptr;
  Launch launch_;
  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<float> shared_;
  std::mt19937 random_;
  unsigned current_ = 0;
  jmp_buf scheduler_;
};

inline Block block;

}  // namespace blocks

// ---- what kernels call ----

inline void __syncthreads() {
#ifndef AF_NO_BARRIERS
  blocks::block.barrier();
#endif
}
inline float __shfl_xor_sync(unsigned, float value, unsigned lane) { return blocks::block.shuffle_xor(value, lane); }
inline float __uint_as_float(unsigned u) {
  float f;
  std::memcpy(&f, &u, sizeof f);
  return f;
}
inline unsigned __float_as_uint(float f) {
  unsigned u;
  std::memcpy(&u, &f, sizeof u);
  return u;
}
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
