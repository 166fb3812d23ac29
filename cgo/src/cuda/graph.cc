// Compiled with -DAF_CUDA_GRAPHS where libtorch has CUDA and CUDA's headers are found.
#include "graph.h"

#include <atomic>
#include <cstdlib>
#include <string>

#ifdef AF_CUDA_GRAPHS
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#endif

#include "launch.h"

namespace af::cuda {
namespace {

class Again : public Graph {
 public:
  explicit Again(std::function<void()> f) : f_(std::move(f)) {}
  void replay() override { f_(); }

 private:
  std::function<void()> f_;
};
std::atomic<int64_t> to_fail{0};

class Repeats : public Recorder {
 public:
  std::unique_ptr<Graph> record(const std::function<void()>& f) override {
    f();
    if (const int64_t left = to_fail; left > 0) {
      to_fail = left - 1;
      TORCH_CHECK(false, left % 2 == 0 ? "CUDA error: out of memory" : "cuLaunchKernel: CUDA_ERROR_OUT_OF_MEMORY");
    }
    return std::make_unique<Again>(f);
  }
};

#ifdef AF_CUDA_GRAPHS
class Captured : public Graph {
 public:
  explicit Captured(std::shared_ptr<const at::cuda::MempoolId_t> of) : pool(std::move(of)) {}
  void replay() override { graph.replay(); }
  const std::shared_ptr<const at::cuda::MempoolId_t> pool;
  at::cuda::CUDAGraph graph;
};

// The current stream of this thread, until the end of the block.
class OnStream {
 public:
  OnStream(const c10::impl::VirtualGuardImpl& guard, const c10::Stream& stream)
      : guard_(guard), before_(guard.exchangeStream(stream)) {}
  ~OnStream() { guard_.exchangeStream(before_); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  const c10::impl::VirtualGuardImpl& guard_;
  const c10::Stream before_;
};

// Older versions of libtorch have no pools of pinned memory.
template <class Allocator>
void end_pool(Allocator& allocator, const at::cuda::MempoolId_t& pool) {
  if constexpr (requires { allocator.end_allocate_to_pool(pool); }) allocator.end_allocate_to_pool(pool);
}

class Captures : public Recorder {
 public:
  explicit Captures(at::Device device)
      : guard_(device.type()), stream_(guard_.getStreamFromGlobalPool(device, /*isHighPriority=*/false)) {}

  std::unique_ptr<Graph> record(const std::function<void()>& f) override {
    const c10::DeviceGuard device(stream_.device());
    std::shared_ptr<const at::cuda::MempoolId_t> pool = pool_.lock();
    if (pool == nullptr) pool = std::make_shared<const at::cuda::MempoolId_t>(at::cuda::graph_pool_handle());
    pool_ = pool;
    auto out = std::make_unique<Captured>(pool);
    guard_.synchronizeStream(guard_.getStream(stream_.device()));
    const OnStream on(guard_, stream_);
    f();  // handles, workspaces and kernels that are loaded at their first use cannot be while a stream is captured
    guard_.synchronizeStream(stream_);
    // Other threads may allocate meanwhile: what they do is not this capture's.
    out->graph.capture_begin(*pool, cudaStreamCaptureModeThreadLocal);
    try {
      f();
      out->graph.capture_end();
    } catch (...) {
      abandon(out->graph, *pool);
      throw;
    }
    return out;
  }

 private:
  // Ends a capture that failed, of which libtorch's allocators else think that it goes on: they would keep memory back.
  // What fails here had ended already.
  void abandon(at::cuda::CUDAGraph& graph, const at::cuda::MempoolId_t& pool) const {
    const auto attempt = [](const auto& end) {
      try {
        end();
      } catch (...) {
      }
    };
    attempt([&] { graph.capture_end(); });
    attempt([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(stream_.device_index(), pool); });
    attempt([&] { end_pool(*at::getHostAllocator(at::kCUDA), pool); });
  }

  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream stream_;
  std::weak_ptr<const at::cuda::MempoolId_t>
      pool_;  // of the graphs that are alive: libtorch drops a pool with its last
};
#endif

bool asked() {
  const char* v = std::getenv("AGENTFLY_CUDA_GRAPHS");
  return v == nullptr || std::string(v) != "0";
}

}  // namespace

void fail_recordings(int64_t count) { to_fail = count; }

std::unique_ptr<Recorder> recorder(at::Device device) {
  if (!asked()) return nullptr;
#ifdef AF_CUDA_GRAPHS
  if (device.is_cuda()) return std::make_unique<Captures>(device);
#endif
  if (device.is_cpu() && on_device(at::empty({0}))) return std::make_unique<Repeats>();
  return nullptr;
}

}  // namespace af::cuda
