// Errors, handles, threads, and the two symbols of gotorch's C++ side that are replaced here.
#include <ATen/Parallel.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include <mutex>
#include <unordered_set>

#include "internal.h"

namespace af {

std::atomic<int64_t> live{0};

namespace {

af_error out_of_memory{AF_ERR_MEMORY, "out of memory"};

std::mutex handles_mutex;                 // guards handles and closed
std::unordered_set<const void*> handles;  // tensors made by new_handle and not freed
std::vector<at::Tensor*> closed;          // finalized by Go, freed by the next drain

void free_tensor(at::Tensor* t) noexcept {
  {
    std::lock_guard<std::mutex> lock(handles_mutex);
    if (handles.erase(t) != 0) live--;
  }
  delete t;
}

}  // namespace

af_error* memory_error() noexcept { return &out_of_memory; }

af_error* make_error(int code, const char* message) noexcept {
  try {
    auto* e = new af_error{code, message};
    live++;
    return e;
  } catch (...) {
    return &out_of_memory;
  }
}

af_tensor new_handle(at::Tensor t) {
  auto p = std::make_unique<at::Tensor>(std::move(t));
  std::lock_guard<std::mutex> lock(handles_mutex);
  handles.insert(p.get());
  live++;
  return p.release();
}

void check_device(int device) {
  if (device >= 0 && device >= af_cuda_devices())
    throw InputError("device cuda:" + std::to_string(device) + " is not there: libtorch sees " +
                     std::to_string(af_cuda_devices()) + " CUDA devices");
}

}  // namespace af

extern "C" {

int af_error_code(const af_error* e) { return e->code; }
const char* af_error_message(const af_error* e) { return e->message.c_str(); }
void af_error_free(af_error* e) {
  if (e == nullptr || e == &af::out_of_memory) return;
  delete e;
  af::live--;
}

const char* af_torch_version(void) { return TORCH_VERSION; }

int af_cuda_devices(void) {
  try {
    if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) return 0;
    return c10::impl::getDeviceGuardImpl(at::kCUDA)->deviceCount();
  } catch (...) {
    return 0;
  }
}

void af_set_threads(int n) {
  try {
    at::set_num_threads(n < 1 ? 1 : n);
  } catch (...) {  // only a count below 1 is refused
  }
}

int64_t af_live_handles(void) { return af::live; }

void af_tensor_free(af_tensor t) {
  if (t != nullptr) af::free_tensor(static_cast<at::Tensor*>(t));
}

int64_t af_tensor_drain(void) {
  std::vector<at::Tensor*> taken;
  {
    std::lock_guard<std::mutex> lock(af::handles_mutex);
    taken.swap(af::closed);
  }
  for (auto* t : taken) af::free_tensor(t);
  return static_cast<int64_t>(taken.size());
}

// gotorch's finalizers call this from any thread while an op may still read the tensor (its calls have no KeepAlive),
// so the tensor is only queued. gotorch's tensor.cc is compiled with -DTensor_Close=Tensor_Close_orig.
void Tensor_Close(void* t) {
  try {
    std::lock_guard<std::mutex> lock(af::handles_mutex);
    af::closed.push_back(static_cast<at::Tensor*>(t));
  } catch (...) {  // out of memory: the tensor stays, which is safe
  }
}

// gotorch's init calls this with half the CPUs, which is 0 on a machine with one and would abort the process.
void SetNumThreads(int32_t) {}

}  // extern "C"
