// AF_CUDA_IMAGE is the path of the fat binary, which scripts/build_native.sh sets where libtorch has CUDA.
#include "image.h"

#ifdef AF_CUDA_IMAGE
__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    "af_cuda_image_begin:\n"
    ".incbin \"" AF_CUDA_IMAGE
    "\"\n"
    "af_cuda_image_end:\n"
    ".byte 0\n"
    ".text\n");
extern "C" const char af_cuda_image_begin[] __attribute__((visibility("hidden")));
extern "C" const char af_cuda_image_end[] __attribute__((visibility("hidden")));
#endif

namespace af::cuda {

std::string carried_image() {
#ifdef AF_CUDA_IMAGE
  return std::string(af_cuda_image_begin, af_cuda_image_end);
#else
  return {};
#endif
}

}  // namespace af::cuda
