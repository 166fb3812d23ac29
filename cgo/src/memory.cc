#include "memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "exchange.h"
#include "internal.h"

namespace af {

at::Tensor host_buffer(int64_t n, at::Device device) {
  const auto options = at::TensorOptions(at::kFloat);
  if (!device.is_cpu()) return at::empty({n}, options.pinned_memory(true));
  at::Tensor t = at::empty({n}, options);
  advise_huge(t.mutable_data_ptr<float>(), n * 4);
  return t;
}

at::Tensor to_host(const at::Tensor& t) { return host_buffer(t.numel(), t.device()).copy_(t); }

void synchronize(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

void empty_cache(at::Device device) {
  if (device.is_cpu()) return;
  synchronize(device);
  at::getDeviceAllocator(device.type())->emptyCache();
}

}  // namespace af

void af_model::release() {
  if (exchange) exchange->settle();
  if (!spread) rounded_ = {};  // else it is all there is on this rank
  if (grad.flat.defined() && grad.flat.any().item<bool>()) {
    const at::Tensor host = af::to_host(grad.flat);
    if (held_gradient.defined()) host.add_(held_gradient);  // of a release before the last backward
    held_gradient = host;
  }
  grad = {};
  pool->clear();
  af::empty_cache(device);
}

void af_model::restore() {
  if (!held_gradient.defined()) return;
  const bool fresh = !grad.flat.defined();  // else there was a backward meanwhile
  if (fresh) grad = zeros();
  if (fresh) grad.flat.copy_(held_gradient);
  if (!fresh) grad.flat.add_(held_gradient.to(device));
  held_gradient = at::Tensor();
  grad_is_zero = false;
}

extern "C" {

af_error* af_model_release(af_model* m) {
  return af::guard([&] {
    if (m->exchange) m->exchange->check_sums();
    m->release();
  });
}

}  // extern "C"
