// The tokens of a batch, dealt out to the ranks of a group that compute it together.
//
// Context parallelism deals out all but attention, which reads one token, so that the activations of a long sequence
// lie on several ranks. For attention each rank gathers the keys and values of all, layer by layer, and again in the
// backward, where the gradients of keys are summed over the ranks. Tensor parallelism (share.h) deals out what lies
// between the products of a layer. Either way gradients of parameters are sums over tokens: those of the ranks add up
// to the batch's, as in a run whose ranks have batches of their own.
//
// Of 2n equal runs of the batch's tokens rank r of n owns the r-th from the front and from the back, because a token of
// the back of a sequence attends to more. Megatron deals each sequence so; this deals the packed batch, which is even
// for long sequences. A rank that a small batch leaves without a token computes the first one too, and one without a
// row a row of no gradient; neither counts.
#pragma once
#include "collective.h"

namespace af {

class Dealt {
 public:
  // tokens of the batch, and the token [N] of each of its rows
  Dealt(const af_model& m, std::shared_ptr<Group> group, int64_t tokens, const std::vector<int64_t>& row_token);

  int64_t tokens() const { return tokens_; }                  // of the batch
  const std::vector<Range>& own() const { return own_; }      // runs of tokens that this rank computes, in their order
  const std::vector<int64_t>& rows() const { return rows_; }  // rows of the batch that are this rank's, in their order

  // own [T, n] of every rank -> [tokens, n] in the batch's order, the same on all ranks.
  at::Tensor gather(const af_model& m, const at::Tensor& own) const;
  // Terms [tokens, n] of every rank -> their sums [T, n] float32 for this rank's tokens; on the CPU they are added in
  // the order of the ranks.
  at::Tensor sum(const af_model& m, const at::Tensor& terms) const;
  // own [rows or 1, n] of every rank -> [N, n] in the batch's order.
  at::Tensor gather_rows(const af_model& m, const at::Tensor& own) const;
  // of [N] those of rows(), or one zero
  at::Tensor own_rows(const at::Tensor& all) const;

 private:
  // Where each of some things lies when every rank has filled its slot.
  struct Slots {
    int64_t size = 0;   // of a rank's slot, a multiple of 16
    at::Tensor of_all;  // [things]: rank * size + its place within the slot
  };
  static Slots slots(const af_model& m, const std::vector<std::vector<int64_t>>& by_rank, int64_t count);
  at::Tensor spread(const af_model& m, const Slots& s, const at::Tensor& own) const;

  const std::shared_ptr<Group> group_;
  const int64_t tokens_;
  std::vector<Range> own_;
  std::vector<int64_t> rows_;
  at::Tensor rows_N_;  // the same on the device
  Slots token_slots_, row_slots_;
};

}  // namespace af
