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
    at_.resize(fibers_.size());
    random_.seed(launch.seed);
    std::vector<unsigned> grid = in_order(launch.grid.x * launch.grid.y);
    order_ = in_order(launch.block.x);
    shuffle(grid);
    for (unsigned b : grid) {
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
  enum class At : char { kReady, kBarrier, kShuffle, kEnd };
  static constexpr size_t kStack = 64 << 10;
  using Place = void* [5];  // of __builtin_setjmp: a kernel changes its thread millions of times, and setjmp is slow

  struct Fiber {
    bool begun = false;  // it has a stack on which it goes from one block to the next
    float given = 0, taken = 0;
    unsigned lane = 0;
    Place here;
    std::unique_ptr<char[]> stack{new char[kStack]};
    std::string error;
  };

  std::vector<unsigned> in_order(unsigned n) const {
    std::vector<unsigned> out(n);
    std::iota(out.begin(), out.end(), 0u);
    if (launch_.order == Order::kDescending) std::reverse(out.begin(), out.end());
    return out;
  }

  void shuffle(std::vector<unsigned>& order) {
    if (launch_.order == Order::kRandom) std::shuffle(order.begin(), order.end(), random_);
  }

  void run_block() {
    const unsigned n = launch_.block.x;
    std::fill_n(at_.begin(), n, At::kReady);
    for (;;) {
      unsigned ended = 0, stopped = 0;
      shuffle(order_);
      for (unsigned i : order_) {
        if (at_[i] == At::kReady) resume(i);
        ended += at_[i] == At::kEnd;
        stopped += at_[i] == At::kBarrier;
      }
      if (ended == n) return;
      const bool shuffled = exchange(n);
      if (stopped == n) {
        std::fill_n(at_.begin(), n, At::kReady);
      } else if (!shuffled) {
        fail("some threads wait at a barrier or a shuffle that others do not reach");
      }
    }
  }

  // Ends the launch. What threads have on their stacks is given up.
  [[noreturn]] void fail(const std::string& why) {
    for (auto& f : fibers_) f->begun = false;
    throw std::runtime_error(why);
  }

  // Lets every warp go on whose threads are all at a shuffle.
  bool exchange(unsigned n) {
    bool any = false;
    for (unsigned first = 0; first + 32 <= n; first += 32) {
      const auto warp = at_.begin() + first;
      if (!std::all_of(warp, warp + 32, [](At at) { return at == At::kShuffle; })) continue;
      for (unsigned i = 0; i < 32; i++)
        fibers_[first + i]->taken = fibers_[first + (i ^ fibers_[first + i]->lane)]->given;
      std::fill_n(warp, 32, At::kReady);
      any = true;
    }
    return any;
  }

  // Runs thread i until it waits or ends.
  [[gnu::noinline]] void resume(unsigned i) {
    current_ = i;
    threadIdx = {i, 0, 0};
    Fiber& f = *fibers_[i];
    if (__builtin_setjmp(scheduler_) != 0) {
      if (!fibers_[current_]->error.empty()) fail(std::exchange(fibers_[current_]->error, ""));
      return;
    }
    if (f.begun) go_to(f.here);
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
    for (;;) {
      try {
        (*b.kernel_)();
      } catch (const std::exception& e) {
        f.error = e.what();
      }
      b.wait(At::kEnd);
    }
  }

  [[gnu::noinline]] void wait(At at) {
    Fiber& f = *fibers_[current_];
    at_[current_] = at;
    if (__builtin_setjmp(f.here) == 0) go_to(scheduler_);
  }

  [[gnu::noinline, noreturn]] static void go_to(Place& place) { __builtin_longjmp(place, 1); }

  static inline Block* self_ = nullptr;
  Launch launch_;
  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<At> at_;           // of each fiber
  std::vector<unsigned> order_;  // of the threads of a block
  std::vector<float> shared_;
  std::mt19937 random_;
  unsigned current_ = 0;
  Place scheduler_;
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
