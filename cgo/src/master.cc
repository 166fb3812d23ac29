#include "master.h"

namespace af {

Master::Master(af_model& m, const Exchange& exchange) : own_(exchange.own()), parts_(m.parts) {
  int64_t size = 0;
  for (const Range& r : own_) {
    begins_.push_back(size);
    size += r.length;
  }
  pieces_ = new_flat(size, m.device);
  value_ = new_flat(parts_.back().length, m.device);
  take(m);
}

void Master::take(af_model& m) {
  for (size_t i = 0; i < own_.size(); i++)
    piece(static_cast<int64_t>(i)).copy_(m.flat.narrow(0, own_[i].begin, own_[i].length));
  value_.copy_(m.flat.narrow(0, parts_.back().begin, parts_.back().length));
  m.spread_out();
  lay_over(m, m.flat);
}

at::Tensor Master::piece(int64_t part) const { return pieces_.narrow(0, begins_[part], own_[part].length); }

void Master::publish(af_model& m, int64_t part, Exchange& exchange) const {
  const Range &all = parts_[part], &own = own_[part];
  const bool value = part + 1 == static_cast<int64_t>(parts_.size());
  const at::Tensor target = value ? value_ : m.weights().flat.narrow(0, all.begin, all.length);
  target.narrow(0, own.begin - all.begin, own.length).copy_(piece(part));
  exchange.gather(part, target);
}

void Master::gather(af_model& m, Group& group) const {
  const bool receives = group.rank() == 0;
  if (receives && m.flat.is_meta()) lay_over(m, new_flat(m.flat.numel(), m.device));
  for (size_t i = 0; i < parts_.size(); i++) {
    const at::Tensor mine = piece(static_cast<int64_t>(i));
    if (receives) m.flat.narrow(0, own_[i].begin, own_[i].length).copy_(mine);
    for (int r = 1; r < group.world(); r++) {
      const Range from = piece_of(parts_[i].length, r, group.world());
      if (from.length == 0) continue;
      at::Tensor piece = mine;
      if (receives) {
        piece = m.flat.narrow(0, parts_[i].begin + from.begin, from.length);
      } else if (r != group.rank()) {
        piece = at::empty({from.length}, pieces_.options());
      }
      group.broadcast(piece, r);
    }
  }
}

void Master::free(af_model& m) const {
  if (!m.flat.is_meta()) lay_over(m, at::empty(m.flat.sizes(), at::TensorOptions(at::kMeta).dtype(at::kFloat)));
}

void Master::lay_over(af_model& m, at::Tensor flat) const {
  m.lay_over(std::move(flat));
  if (!m.layout.value_head) return;
  const int64_t D = m.config.hidden_size, begin = parts_.back().begin;
  m.value_weight_1D = value_.narrow(0, 0, D).view({1, D});
  m.value_bias_1 = value_.narrow(0, m.value_bias_1.storage_offset() - begin, 1);
}

}  // namespace af
