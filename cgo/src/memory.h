// Where a trainer's buffers lie while somebody else needs the device, and while they are not used.
#pragma once
#include <ATen/ATen.h>

namespace af {

// [n] float32 in host memory, uninitialised. Beside a CUDA device it is pinned, so that copies need not be staged.
at::Tensor host_buffer(int64_t n, at::Device device);
// A copy of t [n] in such a buffer, done when it returns.
at::Tensor to_host(const at::Tensor& t);
// Waits for what was queued on the device's current stream; nothing on a CPU.
void synchronize(at::Device device);
// The allocator of the device gives back to it what no tensor uses; nothing on a CPU.
void empty_cache(at::Device device);

}  // namespace af
