// Device memory that other processes open by a handle (CUDA IPC), over the driver's C interface with prototypes of our
// own: it compiles without CUDA's headers and loads libcuda.so.1 when it is asked for. PyTorch's allocator is no help:
// a handle opens a whole allocation of the driver, and its blocks are pieces of such. Source: cuda.h of CUDA 4.1 and
// newer, which keep these symbols and layouts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "internal.h"

namespace af {

struct IpcHandle {  // CUipcMemHandle
  char bytes[AF_IPC_HANDLE_BYTES];
};

struct CudaDriver {
  int (*error_string)(int, const char**) = nullptr;
  int (*allocate)(uint64_t* memory, size_t bytes) = nullptr;
  int (*release)(uint64_t memory) = nullptr;
  int (*handle)(IpcHandle*, uint64_t memory) = nullptr;

  // Throws std::runtime_error where result is not 0: call names it, in the driver's words.
  void check(const char* call, int result) const;
};

// Loads it once; it stays loaded. path "": libcuda.so.1. Throws std::runtime_error, which says what it lacks.
const CudaDriver& cuda_driver(const std::string& path);

// One allocation of the driver on a device. A test's driver allocates on the host.
class SharedMemory {
 public:
  SharedMemory(const CudaDriver& driver, at::Device device, int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  void* data() const { return reinterpret_cast<void*>(memory_); }
  IpcHandle handle() const;

 private:
  const CudaDriver& driver_;
  const at::Device device_;
  uint64_t memory_ = 0;
};

}  // namespace af
