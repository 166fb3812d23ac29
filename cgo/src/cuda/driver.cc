#include "driver.h"

#include <dlfcn.h>

#include <stdexcept>
#include <type_traits>

namespace af::cuda {

std::string Driver::name_of(int result) const {
  const char* name = nullptr;
  const bool known = error_name(result, &name) == kSuccess && name != nullptr;
  return known ? name : "error " + std::to_string(result);
}

void Driver::check(int result, const std::string& what) const {
  if (result == kSuccess) return;
  throw std::runtime_error("CUDA kernels: " + what + ": " + name_of(result) + " (" + path +
                           "); AGENTFLY_CUDA_KERNELS=0 computes with libtorch's own operations");
}

Driver load_driver(const std::string& path) {
  Driver d;
  d.path = path.empty() ? "libcuda.so.1" : path;
  void* handle = dlopen(d.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw std::runtime_error("CUDA kernels: the driver cannot be loaded: " + std::string(dlerror()) +
                             "; install NVIDIA's driver, which brings libcuda.so.1");
  auto symbol = [&](auto& f, const char* name) {
    f = reinterpret_cast<std::decay_t<decltype(f)>>(dlsym(handle, name));
    if (f == nullptr)
      throw std::runtime_error("CUDA kernels: " + d.path + " has no " + name +
                               "; a driver of CUDA 12 or newer is needed");
  };
  symbol(d.init, "cuInit");
  symbol(d.context, "cuCtxGetCurrent");
  symbol(d.device, "cuDeviceGet");
  symbol(d.retain, "cuDevicePrimaryCtxRetain");
  symbol(d.set_context, "cuCtxSetCurrent");
  symbol(d.load, "cuModuleLoadData");
  symbol(d.function, "cuModuleGetFunction");
  symbol(d.set_attribute, "cuFuncSetAttribute");
  symbol(d.launch, "cuLaunchKernel");
  symbol(d.error_name, "cuGetErrorName");
  d.check(d.init(0), "cuInit");
  return d;
}

}  // namespace af::cuda
