// What the ranks of a run send each other around an optimizer step, part by part of the model (see Parameters::parts),
// while it computes: the sums of gradients while the step's last backward goes on, the new parameters while the next
// forward does.
//
// Every rank starts the same operations in the same order, whatever it computes. So a rank that has nothing to compute,
// or whose backward fails, calls send before it next speaks to the others; and the gathers start within the optimizer's
// step, not when a forward comes, which some ranks may have none of.
#pragma once
#include <deque>

#include "collective.h"

namespace af {

class Exchange {
 public:
  Exchange(std::shared_ptr<Group> group, const std::vector<Range>& parts);
  Group& group() { return *group_; }
  const Shards& shards() const { return shards_; }
  std::vector<Range> own() const { return shards_.of(group_->rank()); }  // [parts] this rank's piece of each
  bool idle() const;                                                     // nothing is under way

  // ---- gradients; the parts go from the last to the first, as a backward has them ----
  void expect() { expected_ = true; }  // the next backward adds the last gradients before the optimizer's step
  void check_sums() const;             // InputError where sums have begun
  // A backward begins. InputError where sums have begun, which would miss its gradients.
  void begin_backward();
  // The backward adds nothing more to the part of gradient [P]. Starts its sum if this is the backward expected.
  void added(int64_t part, const at::Tensor& gradient);
  void send(const at::Tensor& gradient);  // starts the sums of the parts that no backward sent
  void collect();                         // waits: this rank's pieces are the sums
  void drop();  // waits for what has begun, which is worth nothing; a lost rank is no error here

  // ---- parameters ----
  // Every rank's piece of the part goes to all. values [length of the part] is whole after need.
  void gather(int64_t part, const at::Tensor& values);
  void need(int64_t part);  // waits until the part is whole
  void settle();            // waits for all parts

 private:
  void start(int64_t part, const at::Tensor& gradient);
  void end_round();

  const std::shared_ptr<Group> group_;
  const Shards shards_;
  bool expected_ = false, sending_ = false;
  int64_t next_;                                   // the part whose sum starts next, -1 after the last
  std::deque<std::unique_ptr<Pending>> sums_;      // that have begun, oldest first
  std::vector<std::unique_ptr<Pending>> gathers_;  // [parts] that nobody has waited for
};

// Waits until the model's parameters are whole on this rank; InputError where they are spread over the ranks.
void settle(const af_model& m);

// The model's parameters, whole on every rank, become rank 0's; the frozen ones too.
void broadcast(af_model& m, Group& group);

}  // namespace af
