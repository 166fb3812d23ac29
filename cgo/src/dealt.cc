#include "dealt.h"

#include <algorithm>

#include "train.h"

namespace af {
namespace {

// The runs of tokens that a rank owns.
std::vector<Range> dealt(int64_t tokens, int64_t rank, int64_t world) {
  const int64_t length = (tokens + 2 * world - 1) / (2 * world);
  std::vector<Range> out;
  for (const int64_t run : {rank, 2 * world - 1 - rank}) {
    const int64_t begin = std::min(run * length, tokens), end = std::min(begin + length, tokens);
    if (begin < end) out.push_back({begin, end - begin});
  }
  return out;
}

}  // namespace

Dealt::Dealt(const af_model& m, std::shared_ptr<Group> group, int64_t tokens, const std::vector<int64_t>& row_token)
    : group_(std::move(group)), tokens_(tokens) {
  const int64_t world = group_->world();
  std::vector<std::vector<int64_t>> token_of(world), row_of(world);
  std::vector<int64_t> owner(tokens);
  for (int64_t r = 0; r < world; r++) {
    for (const Range& run : dealt(tokens, r, world)) {
      for (int64_t t = run.begin; t < run.begin + run.length; t++) {
        token_of[r].push_back(t);
        owner[t] = r;
      }
    }
  }
  for (size_t i = 0; i < row_token.size(); i++) row_of[owner[row_token[i]]].push_back(static_cast<int64_t>(i));
  own_ = dealt(tokens, group_->rank(), world);
  if (own_.empty()) own_ = {{0, 1}};
  rows_ = row_of[group_->rank()];
  rows_N_ = to_device(m, rows_);
  token_slots_ = slots(m, token_of, tokens);
  row_slots_ = slots(m, row_of, static_cast<int64_t>(row_token.size()));
}

Dealt::Slots Dealt::slots(const af_model& m, const std::vector<std::vector<int64_t>>& by_rank, int64_t count) {
  Slots s;
  for (const auto& things : by_rank) s.size = std::max(s.size, static_cast<int64_t>(things.size()));
  s.size = (s.size + 15) / 16 * 16;  // piece_of cuts there
  std::vector<int64_t> place(count);
  for (size_t r = 0; r < by_rank.size(); r++) {
    for (size_t i = 0; i < by_rank[r].size(); i++) place[by_rank[r][i]] = static_cast<int64_t>(r) * s.size + i;
  }
  s.of_all = to_device(m, place);
  return s;
}

// Every rank's own [*, n] into its slot, and the slots to all: [things, n].
at::Tensor Dealt::spread(const af_model& m, const Slots& s, const at::Tensor& own) const {
  const at::Tensor slots = m.scratch({group_->world() * s.size, own.size(1)}, own.scalar_type()).zero_();
  slots.narrow(0, group_->rank() * s.size, own.size(0)).copy_(own);
  group_->start_all_gather(slots.view(-1))->wait();
  at::Tensor all = m.scratch({s.of_all.size(0), own.size(1)}, own.scalar_type());
  at::index_select_out(all, slots, 0, s.of_all);
  return all;
}

at::Tensor Dealt::gather(const af_model& m, const at::Tensor& own) const { return spread(m, token_slots_, own); }

at::Tensor Dealt::sum(const af_model& m, const at::Tensor& terms) const {
  const Slots& s = token_slots_;
  const at::Tensor slots = m.scratch({group_->world() * s.size, terms.size(1)}).zero_();
  slots.index_copy_(0, s.of_all, terms.to(at::kFloat));
  group_->start_reduce_scatter(slots.view(-1))->wait();
  int64_t mine = 0;
  for (const Range& run : own_) mine += run.length;
  return slots.narrow(0, group_->rank() * s.size, mine);
}

at::Tensor Dealt::gather_rows(const af_model& m, const at::Tensor& own) const { return spread(m, row_slots_, own); }

at::Tensor Dealt::own_rows(const at::Tensor& all) const {
  return rows_.empty() ? at::zeros({1}, all.options()) : all.index_select(0, rows_N_);
}

}  // namespace af
