// Compiled with -DUSE_C10D_NCCL where libtorch has CUDA and the headers of CUDA and NCCL are found.
#include "nccl.h"

#include <stdexcept>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace af {

#ifdef USE_C10D_NCCL
bool has_nccl() { return true; }

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
                                            int64_t deadline_ms) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(deadline_ms);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world, options);
}
#else
bool has_nccl() { return false; }

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int, int64_t) {
  throw std::runtime_error("this library was built without NCCL");
}
#endif

}  // namespace af
