// A scripted libcuda.so.1 for tests: no GPU. Its modules are the kernels compiled for the CPU, and a launch runs them
// at once on the memory that it is given, so that loading, lookup, arguments and grids are those of the library.
//
// $SCRIPTED_CUDA_ORDER is that of threads: ascending, descending, or a number that random ones are drawn from.
// $SCRIPTED_CUDA_LOG is a file that each launch is appended to: name, grid, threads, bytes of dynamic shared memory.
// $SCRIPTED_CUDA_FAULT: "no-binary" and "ptx" are devices that an image is not for, "launch" fails, "lacks" has a
// module without af_rope_bf16, "count" launches nothing and logs alone.
//
//   g++ -std=c++20 -O2 -DAF_CPU_BLOCKS -shared -fPIC -Icgo/testdata/cuda -Icgo/src/cuda -o libcuda.so.1
//   scripted_cuda.cc
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "../../src/cuda/kernels.cu"

namespace {

enum {
  kSuccess = 0,
  kInvalidValue = 1,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kUnsupportedPtxVersion = 222,
  kNotFound = 500,
  kLaunchFailed = 719
};

struct Kernel {
  const char* name;
  unsigned most_threads;
  std::function<void(void**)> call;
  int shared_limit = 48 << 10;
};

template <class... A>
std::function<void(void**)> unpacked(void (*f)(A...)) {
  return [f](void** arguments) {
    [&]<size_t... I>(std::index_sequence<I...>) { f(*static_cast<std::decay_t<A>*>(arguments[I])...); }
    (std::index_sequence_for<A...>());
  };
}

#define KERNEL(threads, name)                        \
  {                                                  \
#name, Kernel { #name, threads, unpacked(name) } \
  }
#define KERNELS(threads, name) KERNEL(threads, name##_fp32), KERNEL(threads, name##_bf16)
std::map<std::string, Kernel> kernels{KERNEL(kHeadThreads, af_head_forward),
                                      KERNEL(kRowThreads, af_sum_parts),
                                      KERNEL(kStepThreads, af_adamw),
                                      KERNELS(kHeadThreads, af_head_backward),
                                      KERNELS(kRowThreads, af_swiglu),
                                      KERNELS(kRowThreads, af_swiglu_backward),
                                      KERNELS(kRowThreads, af_rope),
                                      KERNELS(kRowThreads, af_rms_norm),
                                      KERNELS(kRowThreads, af_rms_norm_backward),
                                      KERNELS(kPagedThreads, af_attend_paged),
                                      KERNELS(kPagedThreads, af_join_spans)};

std::string setting(const char* name) {
  const char* e = std::getenv(name);
  return e == nullptr ? "" : e;
}

thread_local int context_of_thread = 0;  // 1 after cuCtxSetCurrent

}  // namespace

extern "C" {

int cuInit(unsigned) { return kSuccess; }
int cuCtxGetCurrent(void** context) {
  *context = context_of_thread == 0 ? nullptr : &context_of_thread;
  return kSuccess;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return index == 0 ? kSuccess : 101;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &context_of_thread;
  return kSuccess;
}
int cuCtxSetCurrent(void* context) {
  context_of_thread = context == &context_of_thread;
  return kSuccess;
}
int cuModuleLoadData(void** module, const void* image) {
  const std::string fault = setting("SCRIPTED_CUDA_FAULT");
  if (context_of_thread == 0) return kInvalidContext;
  if (fault == "no-binary") return kNoBinaryForGpu;
  if (fault == "ptx") return kUnsupportedPtxVersion;
  unsigned magic;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != 0xba55ed50 && magic != 0x464c457f) return kInvalidImage;  // a fat binary, or ELF
  *module = &kernels;
  return kSuccess;
}
int cuModuleGetFunction(void** f, void* module, const char* name) {
  if (module != &kernels) return kInvalidValue;
  const auto found = kernels.find(name);
  if (found == kernels.end() || (setting("SCRIPTED_CUDA_FAULT") == "lacks" && found->first == "af_rope_bf16"))
    return kNotFound;
  *f = &found->second;
  return kSuccess;
}
int cuFuncSetAttribute(void* f, int attribute, int value) {
  if (attribute != 8 || value > 227 << 10) return kInvalidValue;
  static_cast<Kernel*>(f)->shared_limit = value;
  return kSuccess;
}
int cuLaunchKernel(void* f, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned bytes,
                   void*, void** arguments, void**) {
  static std::mutex one;  // kernel at a time, as shared memory and the threads are this library's
  const std::lock_guard<std::mutex> lock(one);
  const Kernel& k = *static_cast<Kernel*>(f);
  const std::string log = setting("SCRIPTED_CUDA_LOG"), fault = setting("SCRIPTED_CUDA_FAULT"),
                    order = setting("SCRIPTED_CUDA_ORDER");
  if (!log.empty())
    std::ofstream(log, std::ios::app) << k.name << " " << x << "x" << y << " " << tx << " " << bytes << "\n";
  if (context_of_thread == 0) return kInvalidContext;
  if (x == 0 || x > INT32_MAX || y == 0 || y > 65535 || z != 1 || ty != 1 || tz != 1) return kInvalidValue;
  if (tx == 0 || tx % 32 != 0 || tx > k.most_threads) return kInvalidValue;
  if (bytes % 4 != 0 || bytes > static_cast<unsigned>(k.shared_limit)) return kInvalidValue;
  if (fault == "launch") return kLaunchFailed;
  if (fault == "count") return kSuccess;
  blocks::Launch launch{{x, y, 1}, {tx, 1, 1}, bytes / sizeof(float)};
  if (order == "descending") {
    launch.order = blocks::Order::kDescending;
  } else if (!order.empty() && order != "ascending") {
    launch.order = blocks::Order::kRandom;
    launch.seed = static_cast<unsigned>(std::stoul(order));
  }
  try {
    blocks::block.run(launch, [&] { k.call(arguments); });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "scripted libcuda: %s: %s\n", k.name, e.what());
    return kLaunchFailed;
  }
  return kSuccess;
}
int cuGetErrorName(int result, const char** name) {
  switch (result) {
    case kInvalidValue:
      return *name = "CUDA_ERROR_INVALID_VALUE", kSuccess;
    case kInvalidImage:
      return *name = "CUDA_ERROR_INVALID_IMAGE", kSuccess;
    case kInvalidContext:
      return *name = "CUDA_ERROR_INVALID_CONTEXT", kSuccess;
    case kNoBinaryForGpu:
      return *name = "CUDA_ERROR_NO_BINARY_FOR_GPU", kSuccess;
    case kUnsupportedPtxVersion:
      return *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", kSuccess;
    case kNotFound:
      return *name = "CUDA_ERROR_NOT_FOUND", kSuccess;
    case kLaunchFailed:
      return *name = "CUDA_ERROR_LAUNCH_FAILED", kSuccess;
    default:
      return kInvalidValue;
  }
}
}
