// Launches of a CUDA device that are recorded once and then repeated as one: a CUDA graph.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <memory>

namespace af::cuda {

class Graph {
 public:
  virtual ~Graph() = default;
  // Launches all of it on libtorch's current stream: the same operations on the same memory.
  virtual void replay() = 0;
};

// Records graphs of one device, whose intermediates share memory: they are not to run at the same time.
class Recorder {
 public:
  virtual ~Recorder() = default;
  // The launches of f, which is called twice: once computed, then recorded, on a stream of their own. What f leaves is
  // that of the first call; memory that it allocates is the graph's. f may not wait for the device.
  virtual std::unique_ptr<Graph> record(const std::function<void()>& f) = 0;
};

// Null where this library was built without CUDA's headers, for the CPU, and with AGENTFLY_CUDA_GRAPHS=0. Where a test
// has the CPU stand for a device a graph calls f again.
std::unique_ptr<Recorder> recorder(at::Device device);

// For the tests: the next count recordings of the CPU in place of a device fail as the driver does without memory.
void fail_recordings(int64_t count);

}  // namespace af::cuda
