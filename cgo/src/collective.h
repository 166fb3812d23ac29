// The ranks of a data-parallel run, without c10d's headers.
#pragma once
#include <functional>

#include "internal.h"

namespace af {

// Who owns what of a flat buffer of P floats: rank r the chunk [r * chunk, (r + 1) * chunk), rank 0 the rest behind the
// chunks too, which is shorter than 16 * world floats.
struct Shards {
  Shards(int64_t P, int world_size) : world(world_size), size(P), chunk(world == 1 ? P : P / world / 16 * 16) {}
  int64_t world, size, chunk;
  struct Range {
    int64_t begin, length;
  };
  std::vector<Range> of(int64_t rank) const {
    std::vector<Range> out{{rank * chunk, chunk}};
    if (rank == 0 && chunk * world < size) out.push_back({chunk * world, size - chunk * world});
    return out;
  }
};

// Every method is called by all ranks in the same order; it returns when the result is there (on CUDA: when the current
// stream waits for it), or throws RankError, which names the rank that is late, gone or failed. After that the group is
// broken: every further call throws the same. Calls must not overlap.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual void barrier() = 0;
  // t, contiguous, on any device, becomes root's. patient: as long as root's process is alive there is no deadline.
  virtual void broadcast(const at::Tensor& t, int root, bool patient = false) = 0;
  virtual void all_reduce(const at::Tensor& flat) = 0;
  // flat [P]: each rank's own shards become the sum over all ranks; the others are undefined.
  virtual void reduce_scatter(const at::Tensor& flat) = 0;
  // flat [P]: every rank's own shards go to all.
  virtual void all_gather(const at::Tensor& flat) = 0;
  // out [world, n] of in [n], CPU tensors.
  virtual void gather(const at::Tensor& out, const at::Tensor& in) = 0;
  // Tells the others that this rank fails, and why; they throw when they next look.
  virtual void fail(const std::string& why) = 0;

  std::vector<double> gather_double(double value) {
    at::Tensor out = at::empty({world(), 1}, at::kDouble);
    gather(out, at::full({1}, value, at::kDouble));
    const double* p = out.const_data_ptr<double>();
    return {p, p + world()};
  }
};

}  // namespace af

struct af_group {
  std::shared_ptr<af::Group> group;
};
