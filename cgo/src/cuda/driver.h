// The part of CUDA's driver that loads and launches kernels, with prototypes of our own: it compiles without CUDA's
// headers and loads libcuda.so.1 when a kernel is first asked for. Source: cuda.h of CUDA 12 and 13, which keep these
// symbols and numbers.
#pragma once
#include <string>

namespace af::cuda {

using Module = void*;
using Function = void*;

enum {  // CUresult
  kSuccess = 0,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
};
constexpr int kMostDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

struct Driver {
  std::string path;  // that was loaded

  int (*init)(unsigned) = nullptr;
  int (*context)(void**) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_context)(void*) = nullptr;
  int (*load)(Module*, const void* image) = nullptr;
  int (*function)(Function*, Module, const char* name) = nullptr;
  int (*set_attribute)(Function, int attribute, int value) = nullptr;
  int (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y, unsigned z,
                unsigned shared_bytes, void* stream, void** arguments, void** extra) = nullptr;
  int (*error_name)(int, const char**) = nullptr;

  // Throws std::runtime_error where a call that is named what did not succeed.
  void check(int result, const std::string& what) const;
  std::string name_of(int result) const;
};

// Loads it; it stays loaded. path "": libcuda.so.1, which libtorch has opened before where there is a device. Throws
// std::runtime_error, which says what is missing and what to do.
Driver load_driver(const std::string& path);

}  // namespace af::cuda
