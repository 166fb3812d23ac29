// AdamW with decoupled weight decay (Loshchilov & Hutter, arXiv 1711.05101), as torch.optim.AdamW, over all parameters
// at once.
#include <ATen/Parallel.h>

#include <cmath>

#include "adamw.h"
#include "exchange.h"
#include "kernels.h"
#include "master.h"
#include "memory.h"
#include "profile.h"
#include "train.h"

// With a group, this rank steps its pieces of the flat buffers alone: the moments of the others live elsewhere.
struct af_optimizer {
  std::shared_ptr<af_model> model;
  std::shared_ptr<af::Exchange> exchange;  // null: this process alone
  std::unique_ptr<af::Master> master;      // where the float32 parameters are spread too
  af_adamw_config config;
  std::vector<std::string> trained;  // what it was made for
  std::vector<af::Range> own;        // of the flat buffers, ascending; with ranks one of each part
  // [sum of own lengths] own ranges one after the other; in host memory while released, and always with config.offload
  at::Tensor exp_avg, exp_avg_sq;
  bool released = false;
  int64_t step = 0;

  // Whether the ranks talk while the model computes.
  bool overlaps() const { return exchange && model->exchange == exchange; }
};

namespace af {
namespace {

constexpr int64_t kChunk = 1 << 16;  // elements summed at once, so that the norm has one order of additions

constexpr int64_t kNormChunk = 1 << 26;  // the same of ATen's norms, which sum in float32

// ATen's norms of chunks need no copy of what they read. Where a square leaves the range of float32, a chunk at a time
// is read again as float64.
double sum_squares_generic(const at::Tensor& flat) {
  std::vector<at::Tensor> norms;
  const auto chunks = flat.split(kNormChunk);
  for (const at::Tensor& chunk : chunks) norms.push_back(at::linalg_vector_norm(chunk));
  const double total = at::stack(norms).to(at::kDouble).square().sum().item<double>();
  if (std::isfinite(total)) return total;
  double again = 0;
  for (const at::Tensor& chunk : chunks) again += chunk.to(at::kDouble).square().sum().item<double>();
  return again;
}

double sum_squares(const af_model& model, const at::Tensor& flat) {
  if (!use_kernels(model)) return flat.numel() == 0 ? 0 : sum_squares_generic(flat);
  const int64_t n = flat.numel(), chunks = (n + kChunk - 1) / kChunk;
  const float* g = flat.const_data_ptr<float>();
  std::vector<double> sums(chunks);
  at::parallel_for(0, chunks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      sums[i] = kernel::sum_squares(g + i * kChunk, std::min(kChunk, n - i * kChunk));
  });
  double total = 0;
  for (double s : sums) total += s;
  return total;
}

// Of the gradients summed over all ranks; leaves those sums in the own ranges.
double global_norm(const af_optimizer& o) {
  const at::Tensor& gradient = o.model->grad.flat;
  if (o.exchange) {
    o.exchange->send(gradient);
    o.exchange->collect();
  }
  double total = 0;
  for (const auto& r : o.own) total += sum_squares(*o.model, gradient.narrow(0, r.begin, r.length));
  if (!o.exchange) return std::sqrt(total);
  const std::vector<double> parts = o.exchange->group().gather_double(total);
  total = 0;
  for (double part : parts) total += part;  // in the order of the ranks: the same bits on each
  return std::sqrt(total);
}

void step_range(const af_optimizer& o, const at::Tensor& params, const at::Tensor& gradients, const at::Tensor& avg,
                const at::Tensor& avg_sq, const at::Tensor& rounded, const StepNumbers& n) {
  if (use_kernels(*o.model)) return adamw_on_kernels(params, gradients, avg, avg_sq, n);
  adamw(params, gradients, avg, avg_sq, rounded, n);
}

// Steps params and gradients, a piece of this rank's whose moments begin at at; rounded as adamw takes it. The moments
// come to the device in chunks where they lie in host memory. The copies and the step are queued one behind the other,
// so that the next chunk may use the same two buffers.
void step_moments(const af_optimizer& o, const at::Tensor& params, const at::Tensor& gradients,
                  const at::Tensor& rounded, int64_t at, const StepNumbers& n) {
  const int64_t length = params.numel();
  if (length == 0) return;
  const at::Tensor avg = o.exp_avg.narrow(0, at, length), avg_sq = o.exp_avg_sq.narrow(0, at, length);
  if (o.config.offload == 0) return step_range(o, params, gradients, avg, avg_sq, rounded, n);
  const int64_t most = std::min(o.config.offload, length);
  const at::Tensor here = at::empty({most}, params.options()), here_sq = at::empty({most}, params.options());
  for (int64_t i = 0; i < length; i += most) {
    const int64_t size = std::min(most, length - i);
    const at::Tensor m = here.narrow(0, 0, size), v = here_sq.narrow(0, 0, size);
    m.copy_(avg.narrow(0, i, size), /*non_blocking=*/true);
    v.copy_(avg_sq.narrow(0, i, size), /*non_blocking=*/true);
    step_range(o, params.narrow(0, i, size), gradients.narrow(0, i, size), m, v,
               rounded.defined() ? rounded.narrow(0, i, size) : rounded, n);
    avg.narrow(0, i, size).copy_(m, /*non_blocking=*/true);
    avg_sq.narrow(0, i, size).copy_(v, /*non_blocking=*/true);
  }
}

void step(af_optimizer& o, double lr, double gradient_scale) {
  af_model& model = *o.model;
  if (o.exchange) o.exchange->settle();  // no forward may have come since the last step
  const bool on_kernels = use_kernels(model);
  const StepNumbers n = step_numbers(o.config, ++o.step, lr, gradient_scale);
  // Of one process alone, whose range is all of the parameters: a forward need not round them again.
  const at::Tensor rounded = on_kernels || o.exchange ? at::Tensor() : model.rounded_flat();
  int64_t at = 0;
  for (size_t i = 0; i < o.own.size(); i++) {
    const Range& r = o.own[i];
    const int64_t part = static_cast<int64_t>(i);
    step_moments(o, o.master ? o.master->piece(part) : model.flat.narrow(0, r.begin, r.length),
                 model.grad.flat.narrow(0, r.begin, r.length), rounded, at, n);
    at += r.length;
    if (o.master) {
      o.master->publish(model, part, *o.exchange);
    } else if (o.exchange) {
      o.exchange->gather(part, model.flat.narrow(0, model.parts[i].begin, model.parts[i].length));
    }
  }
  if (o.config.offload > 0) synchronize(model.device);  // whoever reads the moments reads host memory
  model.version++;
  if (rounded.defined()) model.took_rounded();
  model.grad_is_zero = true;  // each range was cleared by its step
  if (!o.exchange) return;
  model.grad.flat.zero_();  // the ranges of other ranks too
  if (!o.overlaps()) o.exchange->settle();
}

const at::Tensor& moment(const af_optimizer& o, int which) {
  if (which != 0 && which != 1)
    throw InputError("optimizer state " + std::to_string(which) + " does not exist, allowed are 0 and 1");
  return which == 0 ? o.exp_avg : o.exp_avg_sq;
}

// The parameter called name, a view of the flat buffer.
const at::Tensor& trained_parameter(const af_optimizer& o, const char* name) {
  const at::Tensor& t = o.model->find(*o.model, name);
  if (!t.storage().is_alias_of(o.model->flat.storage()))
    throw InputError(std::string("parameter ") + name + " has no optimizer state, it is not trained");
  return t;
}

// Calls f(rank, offset in the parameter, the rank's piece) for each piece of the parameter's state; the piece is
// undefined on the ranks that do not hold it.
template <class F>
void each_piece(const af_optimizer& o, const at::Tensor& parameter, int which, F&& f) {
  const int64_t begin = parameter.storage_offset(), end = begin + parameter.numel();
  const int64_t self = o.exchange ? o.exchange->group().rank() : 0;
  for (int64_t r = 0; r < (o.exchange ? o.exchange->group().world() : 1); r++) {
    int64_t at = 0;
    for (const auto& range : o.exchange ? o.exchange->shards().of(r) : o.own) {
      const int64_t from = std::max(begin, range.begin), to = std::min(end, range.begin + range.length);
      if (from < to) {
        at::Tensor piece;
        if (r == self) piece = moment(o, which).narrow(0, at + from - range.begin, to - from);
        f(r, from - begin, to - from, piece);
      }
      at += range.length;
    }
  }
}

at::Tensor make_moment(const af_optimizer& o) {
  int64_t size = 0;
  for (const auto& r : o.own) size += r.length;
  if (o.config.offload > 0) return host_buffer(size, o.model->device).zero_();
  return new_flat(size, o.model->device);
}

void check_size(const at::Tensor& t, const char* name, int64_t n) {
  if (t.numel() == n) return;
  throw InputError(std::string("optimizer state of ") + name + " has " + std::to_string(t.numel()) +
                   " elements, the buffer has " + std::to_string(n));
}

void check_config(const af_adamw_config& c) {
  auto fraction = [](double b) { return b >= 0 && b < 1; };
  if (!fraction(c.beta1) || !fraction(c.beta2)) throw InputError("beta1 and beta2 must be at least 0 and below 1");
  if (!(c.eps > 0) || !std::isfinite(c.eps)) throw InputError("eps must be above 0");
  if (!(c.weight_decay >= 0) || !std::isfinite(c.weight_decay)) throw InputError("weight_decay must be at least 0");
  if (c.offload < 0) throw InputError("offload must be at least 0");
}

}  // namespace
}  // namespace af

extern "C" {

af_error* af_optimizer_new(af_model* m, const af_adamw_config* c, af_group* g, int shard, af_optimizer** out) {
  return af::guard([&] {
    af::check_config(*c);
    if (shard != AF_ZERO1 && shard != AF_FSDP)
      throw af::InputError("shard is " + std::to_string(shard) + ", allowed are AF_ZERO1 and AF_FSDP");
    if (m->spread) throw af::InputError("the parameters are spread over the ranks by another optimizer");
    if (m->exchange) m->exchange->settle();
    m->exchange = nullptr;
    auto o = std::make_unique<af_optimizer>();
    o->model = m->shared_from_this();
    o->config = *c;
    o->trained = m->trained;
    if (g != nullptr && g->group->world() > 1) o->exchange = std::make_shared<af::Exchange>(g->group, m->parts);
    o->own = o->exchange ? o->exchange->own() : std::vector<af::Range>{{0, m->flat.numel()}};
    o->exp_avg = af::make_moment(*o);
    o->exp_avg_sq = af::make_moment(*o);
    if (o->exchange && shard == AF_FSDP) {
      if (m->dtype != at::kFloat) {
        o->master = std::make_unique<af::Master>(*m, *o->exchange);
        if (g->group->rank() > 0) o->master->free(*m);
      }
      m->exchange = o->exchange;
    }
    af::live++;
    *out = o.release();
  });
}

void af_optimizer_free(af_optimizer* o) {
  if (o == nullptr) return;
  af::live--;
  if (o->overlaps() && o->exchange->idle()) o->model->exchange = nullptr;  // else whoever reads the parameters waits
  delete o;
}

af_error* af_optimizer_expect(af_optimizer* o) {
  return af::guard([&] {
    if (o->overlaps()) o->exchange->expect();
  });
}

af_error* af_optimizer_send(af_optimizer* o) {
  return af::guard([&] {
    if (!o->overlaps()) return;
    af_model& m = *o->model;
    if (!m.grad.flat.defined()) m.grad = m.zeros();
    o->exchange->send(m.grad.flat);
  });
}

af_error* af_optimizer_gather(af_optimizer* o) {
  return af::guard([&] {
    if (o->master) o->master->gather(*o->model, o->exchange->group());
  });
}

af_error* af_optimizer_spread(af_optimizer* o) {
  return af::guard([&] {
    if (o->master) o->master->free(*o->model);
  });
}

af_error* af_optimizer_share(af_optimizer* o) {
  return af::guard([&] {
    if (!o->exchange) return;
    af_model& m = *o->model;
    af::Group& group = o->exchange->group();
    o->exchange->settle();
    if (m.flat.is_meta()) {
      if (group.rank() == 0) throw af::InputError("the parameters of rank 0 are not whole; gather them first");
      m.lay_over(af::new_flat(m.flat.numel(), m.device));
    }
    af::broadcast(m, group);
    if (!o->master) return;
    o->master->take(m);
    if (group.rank() > 0) o->master->free(m);
  });
}

af_error* af_optimizer_step(af_optimizer* o, double lr, double max_norm, double* norm) {
  return af::guard([&] {
    const af::StageTimer timer(af::Stage::kOptimizer, o->model->device);
    if (!std::isfinite(lr) || lr < 0) throw af::InputError("the learning rate must be finite and at least 0");
    if (!(max_norm >= 0)) throw af::InputError("max_norm must be at least 0");
    af_model& m = *o->model;
    if (o->trained != m.trained)
      throw af::InputError("the optimizer was made before a value head or an adapter was added; make it afterwards");
    if (o->released || m.held_gradient.defined())
      throw af::InputError("the optimizer's memory was released; restore it first");
    if (!m.grad.flat.defined()) m.grad = m.zeros();
    *norm = af::global_norm(*o);
    if (!std::isfinite(*norm)) {
      m.grad.flat.zero_();
      m.grad_is_zero = true;
      throw af::NonFiniteError("the gradient norm is not finite; gradients are dropped, parameters are unchanged");
    }
    af::step(*o, lr, max_norm > 0 ? std::min(1.0, max_norm / (*norm + 1e-6)) : 1.0);
  });
}

af_error* af_optimizer_zero_grad(af_optimizer* o) {
  return af::guard([&] {
    if (o->exchange) o->exchange->drop();
    if (o->model->grad.flat.defined()) o->model->grad.flat.zero_(), o->model->grad_is_zero = true;
    o->model->held_gradient = at::Tensor();
  });
}

af_error* af_optimizer_release(af_optimizer* o) {
  return af::guard([&] {
    if (o->overlaps()) o->exchange->check_sums();
    if (!o->released && o->config.offload == 0) {
      at::Tensor avg = af::to_host(o->exp_avg), avg_sq = af::to_host(o->exp_avg_sq);  // both or none
      o->exp_avg = std::move(avg), o->exp_avg_sq = std::move(avg_sq);
    }
    o->released = true;
    o->model->release();
  });
}

af_error* af_optimizer_restore(af_optimizer* o) {
  return af::guard([&] {
    if (o->released && o->config.offload == 0) {
      auto back = [&](const at::Tensor& t) { return af::new_flat(t.numel(), o->model->device).copy_(t); };
      at::Tensor avg = back(o->exp_avg), avg_sq = back(o->exp_avg_sq);  // both or none
      o->exp_avg = std::move(avg), o->exp_avg_sq = std::move(avg_sq);
    }
    o->released = false;
    o->model->restore();
  });
}

af_error* af_optimizer_get_state(af_optimizer* o, const char* name, int which, float* out, int64_t n) {
  return af::guard([&] {
    const at::Tensor& parameter = af::trained_parameter(*o, name);
    af::check_size(parameter, name, n);
    const at::Tensor target = at::from_blob(out, {n}, at::kFloat);
    af::each_piece(*o, parameter, which, [&](int64_t rank, int64_t at, int64_t length, const at::Tensor& own) {
      if (!o->exchange) return void(target.narrow(0, at, length).copy_(own));
      const at::Tensor piece =
          own.defined() ? own.to(at::kCPU, at::kFloat, false, true) : at::empty({length}, at::kFloat);
      o->exchange->group().broadcast(piece, static_cast<int>(rank));
      target.narrow(0, at, length).copy_(piece);
    });
  });
}

af_error* af_optimizer_set_state(af_optimizer* o, const char* name, int which, const float* data, int64_t n) {
  return af::guard([&] {
    const at::Tensor& parameter = af::trained_parameter(*o, name);
    af::check_size(parameter, name, n);
    const at::Tensor source = at::from_blob(const_cast<float*>(data), {n}, at::kFloat);
    af::each_piece(*o, parameter, which, [&](int64_t, int64_t at, int64_t length, const at::Tensor& own) {
      if (own.defined()) own.copy_(source.narrow(0, at, length));
    });
  });
}

int64_t af_optimizer_get_step(const af_optimizer* o) { return o->step; }
void af_optimizer_set_step(af_optimizer* o, int64_t step) { o->step = step; }

}  // extern "C"
