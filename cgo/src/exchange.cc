#include "exchange.h"

#include <algorithm>

namespace af {
namespace {

// Sums that go on at once. Each has a buffer as large as its part where the backend needs one, so that they are few;
// two keep the network busy while the next layer computes.
constexpr size_t kSums = 2;

}  // namespace

Exchange::Exchange(std::shared_ptr<Group> group, const std::vector<Range>& parts)
    : group_(std::move(group)),
      shards_{parts, group_->world()},
      next_(static_cast<int64_t>(parts.size()) - 1),
      gathers_(parts.size()) {}

bool Exchange::idle() const {
  return sums_.empty() && std::all_of(gathers_.begin(), gathers_.end(), [](const auto& g) { return g == nullptr; });
}

void Exchange::check_sums() const {
  if (next_ + 1 < static_cast<int64_t>(shards_.buckets.size()))
    throw InputError(
        "the gradients of this step are on their way to the other ranks; take the step or drop them first");
}

void Exchange::begin_backward() {
  sending_ = expected_;
  expected_ = false;
  check_sums();
}

void Exchange::start(int64_t part, const at::Tensor& gradient) {
  if (part != next_)
    throw std::logic_error("the sum of part " + std::to_string(part) + " was to start after that of part " +
                           std::to_string(next_));
  next_--;
  const Range r = shards_.buckets[part];
  if (r.length == 0) return;
  while (sums_.size() >= kSums) {
    sums_.front()->wait();
    sums_.pop_front();
  }
  sums_.push_back(group_->start_reduce_scatter(gradient.narrow(0, r.begin, r.length)));
}

void Exchange::added(int64_t part, const at::Tensor& gradient) {
  if (sending_) start(part, gradient);
}

void Exchange::send(const at::Tensor& gradient) {
  expected_ = sending_ = false;
  while (next_ >= 0) start(next_, gradient);
}

void Exchange::collect() {
  for (; !sums_.empty(); sums_.pop_front()) sums_.front()->wait();
  end_round();
}

void Exchange::drop() {
  try {
    collect();
  } catch (const RankError&) {  // whoever speaks to the others next is told
    sums_.clear();
    end_round();
  }
}

void Exchange::end_round() {
  expected_ = sending_ = false;
  next_ = static_cast<int64_t>(shards_.buckets.size()) - 1;
}

void Exchange::gather(int64_t part, const at::Tensor& values) {
  if (values.numel() > 0) gathers_[part] = group_->start_all_gather(values);
}

void Exchange::need(int64_t part) {
  if (!gathers_[part]) return;
  gathers_[part]->wait();
  gathers_[part].reset();
}

void Exchange::settle() {
  for (size_t i = 0; i < gathers_.size(); i++) need(static_cast<int64_t>(i));
}

void settle(const af_model& m) {
  if (m.exchange) m.exchange->settle();
  if (m.flat.is_meta()) throw InputError("the parameters are spread over the ranks; gather them first");
}

void broadcast(af_model& m, Group& group) {
  group.broadcast(m.flat, 0);
  if (m.frozen.defined()) group.broadcast(m.frozen, 0);
  af_model_changed(&m);
}

}  // namespace af
