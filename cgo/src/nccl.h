// The NCCL backend of c10d, where this library was built with it.
#pragma once
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace af {

bool has_nccl();
// Throws where has_nccl is false. deadline_ms: after which NCCL's own watchdog ends the process, as the last resort.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world,
                                            int64_t deadline_ms);

}  // namespace af
