// The ranks of a data-parallel run, without c10d's headers.
#pragma once
#include <functional>

#include "internal.h"

namespace af {

// What rank owns of a bucket of n elements: an equal chunk each, a multiple of 16; the last rank has the rest too,
// which is shorter than 16 * world elements.
inline Range piece_of(int64_t n, int64_t rank, int64_t world) {
  const int64_t chunk = n / world / 16 * 16, begin = rank * chunk;
  return {begin, rank + 1 == world ? n - begin : chunk};
}

// Who owns what of a flat buffer that is cut into buckets: each rank a piece of every bucket.
struct Shards {
  std::vector<Range> buckets;  // of the buffer, in its order
  int64_t world = 1;
  std::vector<Range> of(int64_t rank) const {  // [buckets] pieces of the buffer, some empty
    std::vector<Range> out;
    for (const Range& b : buckets) {
      const Range piece = piece_of(b.length, rank, world);
      out.push_back({b.begin + piece.begin, piece.length});
    }
    return out;
  }
};

// An operation that goes on while its caller computes. It must not outlive its group; destroyed before wait it still
// ends.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;  // as the methods of Group
};

// What this rank has received from the others, and how long it took.
struct Traffic {
  int64_t sums = 0, gathers = 0, rest = 0;  // bytes: reduce-scatters, all-gathers, everything else
  double busy = 0;                          // seconds in which a reduce-scatter or an all-gather was going on
  double waited = 0;                        // seconds of them in which the caller did nothing but wait for it
};

// Every method is called by all ranks in the same order; it returns when the result is there (on CUDA: when the current
// stream waits for it), or throws RankError, which names the rank that is late, gone or failed. After that the group is
// broken: every further call throws the same. Calls must not overlap; what start_* began goes on between them.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual void barrier() = 0;
  // t, contiguous, on any device, becomes root's. patient: as long as root's process is alive there is no deadline.
  virtual void broadcast(const at::Tensor& t, int root, bool patient = false) = 0;
  virtual void all_reduce(const at::Tensor& flat) = 0;
  // bucket [n], contiguous: each rank's own piece becomes the sum over all ranks, the others are undefined. On the CPU
  // the terms are added in the order of the ranks. Nobody may write to bucket before wait.
  virtual std::unique_ptr<Pending> start_reduce_scatter(const at::Tensor& bucket) = 0;
  // bucket [n], contiguous: every rank's own piece goes to all.
  virtual std::unique_ptr<Pending> start_all_gather(const at::Tensor& bucket) = 0;
  virtual Traffic traffic() const = 0;
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
