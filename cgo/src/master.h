// The float32 parameters of a model that computes in bfloat16, spread over the ranks: each has its pieces, which its
// optimizer steps, and the rounded copy of all of them, which forwards read. The value head stays float32 and whole:
// its values are reduced in float32.
#pragma once
#include "exchange.h"

namespace af {

class Master {
 public:
  // Takes this rank's pieces of the model's parameters, which are whole, and rounds the rest. They stay whole until
  // free.
  Master(af_model& m, const Exchange& exchange);
  void take(af_model& m);
  at::Tensor piece(int64_t part) const;  // float32, this rank's
  // Sends this rank's piece of the part, rounded, to all; see Exchange::gather.
  void publish(af_model& m, int64_t part, Exchange& exchange) const;
  // Rank 0's parameters become whole. Blocks; all ranks call it alike.
  void gather(af_model& m, Group& group) const;
  void free(af_model& m) const;  // the model's parameters lie over no memory afterwards

 private:
  void lay_over(af_model& m, at::Tensor flat) const;

  const std::vector<Range> own_;  // [parts] this rank's piece of each, in the flat buffer
  const std::vector<Range> parts_;
  at::Tensor pieces_;            // [sum of own lengths], in the order of the parts
  at::Tensor value_;             // [length of the value head's part]
  std::vector<int64_t> begins_;  // [parts] where a part's piece begins in pieces_
};

}  // namespace af
