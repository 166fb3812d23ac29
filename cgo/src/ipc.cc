#include "ipc.h"

#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>

#include <map>
#include <mutex>

namespace af {
namespace {

constexpr const char* kName = "libcuda.so.1";

std::unique_ptr<CudaDriver> load(const std::string& path) {
  const std::string name = path.empty() ? kName : path;
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error("the CUDA driver cannot be loaded: " + std::string(dlerror()));
  auto d = std::make_unique<CudaDriver>();
  auto symbol = [&](auto& f, const char* symbol) {
    f = reinterpret_cast<std::decay_t<decltype(f)>>(dlsym(handle, symbol));
    if (f == nullptr) throw std::runtime_error(name + " has no " + symbol);
  };
  symbol(d->error_string, "cuGetErrorString");
  symbol(d->allocate, "cuMemAlloc_v2");
  symbol(d->release, "cuMemFree_v2");
  symbol(d->handle, "cuIpcGetMemHandle");
  return d;
}

// The driver's calls use the context that is current on their OS thread, and each may come on another one. libtorch
// makes the device's context current with the first tensor that a thread makes there.
void make_current(at::Device device) {
  if (!device.is_cpu()) at::zeros({1}, at::TensorOptions(at::kFloat).device(device));
}

}  // namespace

void CudaDriver::check(const char* call, int result) const {
  if (result == 0) return;
  const char* text = nullptr;
  if (error_string(result, &text) != 0 || text == nullptr) text = "unknown error";
  throw std::runtime_error(std::string(call) + ": " + text + " (" + std::to_string(result) + ")");
}

const CudaDriver& cuda_driver(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<CudaDriver>> loaded;
  std::lock_guard<std::mutex> lock(mutex);
  auto& d = loaded[path];
  if (!d) d = load(path);
  return *d;
}

SharedMemory::SharedMemory(const CudaDriver& driver, at::Device device, int64_t bytes)
    : driver_(driver), device_(device) {
  const c10::DeviceGuard guard(device_);
  make_current(device_);
  driver_.check("cuMemAlloc", driver_.allocate(&memory_, static_cast<size_t>(bytes)));
}

SharedMemory::~SharedMemory() {
  try {
    const c10::DeviceGuard guard(device_);
    try {
      make_current(device_);
    } catch (...) {  // the device is full: the context may be current all the same
    }
    driver_.release(memory_);
  } catch (...) {  // nothing can be done about an error here
  }
}

IpcHandle SharedMemory::handle() const {
  const c10::DeviceGuard guard(device_);
  make_current(device_);
  IpcHandle h{};
  driver_.check("cuIpcGetMemHandle", driver_.handle(&h, memory_));
  return h;
}

}  // namespace af
