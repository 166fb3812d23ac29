// Tensors in and out, and the autograd operations that gotorch lacks.
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "train.h"

namespace af {
namespace {

at::ScalarType any_scalar_type(int dtype) {
  switch (dtype) {
    case AF_F32:
      return at::kFloat;
    case AF_F16:
      return at::kHalf;
    case AF_BF16:
      return at::kBFloat16;
    case AF_F64:
      return at::kDouble;
    default:
      throw InputError("unknown dtype " + std::to_string(dtype));
  }
}

at::Tensor unary(int op, const at::Tensor& a) {
  switch (op) {
    case AF_OP_EXP:
      return at::exp(a);
    case AF_OP_NEG:
      return at::neg(a);
    case AF_OP_DETACH:
      return a.detach();
    case AF_OP_SIGMOID:
      return at::sigmoid(a);
    default:
      throw InputError("unknown unary operation " + std::to_string(op));
  }
}

at::Tensor binary(int op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case AF_OP_MINIMUM:
      return at::minimum(a, b);
    case AF_OP_MAXIMUM:
      return at::maximum(a, b);
    case AF_OP_GT:
      return at::gt(a, b);
    case AF_OP_LT:
      return at::lt(a, b);
    default:
      throw InputError("unknown binary operation " + std::to_string(op));
  }
}

// Autograd computes on the thread that calls it, also what belongs to a device, for which it has threads of its own:
// the device would wait until one of them has woken.
class CallersThread {
 public:
  CallersThread() : state_(c10::AutogradState::get_tls_state()) {
    c10::AutogradState here = state_;
    here.set_multithreading_enabled(false);
    c10::AutogradState::set_tls_state(here);
  }
  ~CallersThread() { c10::AutogradState::set_tls_state(state_); }
  CallersThread(const CallersThread&) = delete;
  CallersThread& operator=(const CallersThread&) = delete;

 private:
  const c10::AutogradState state_;
};

}  // namespace
}  // namespace af

using af::guard;
using af::new_handle;
using af::tensor;

extern "C" {

af_error* af_tensor_new(af_model* m, const void* data, int dtype, const int64_t* shape, int ndim, af_tensor* out) {
  return guard([&] {
    at::IntArrayRef sizes(shape, static_cast<size_t>(ndim));
    for (int64_t d : sizes) {
      if (d < 0) throw af::InputError("negative dimension " + std::to_string(d));
    }
    const auto options = at::TensorOptions(af::any_scalar_type(dtype));
    at::Tensor t = at::empty(sizes, options);
    if (t.numel() > 0) t.copy_(at::from_blob(const_cast<void*>(data), sizes, options));
    *out = new_handle(m == nullptr || m->device.is_cpu() ? t : af::to_device(*m, t));
  });
}

af_error* af_tensor_read(af_tensor t, float* out, int64_t n) {
  return guard([&] {
    const at::Tensor& a = tensor(t);
    if (a.numel() != n) {
      throw af::InputError("tensor has " + std::to_string(a.numel()) + " elements, the buffer has " +
                           std::to_string(n));
    }
    if (n > 0) at::from_blob(out, {n}, at::kFloat).copy_(a.detach().reshape(-1));
  });
}

int64_t af_tensor_numel(af_tensor t) { return t == nullptr ? -1 : static_cast<at::Tensor*>(t)->numel(); }

af_error* af_op_unary(int op, af_tensor a, af_tensor* out) {
  return guard([&] { *out = new_handle(af::unary(op, tensor(a))); });
}

af_error* af_op_binary(int op, af_tensor a, af_tensor b, af_tensor* out) {
  return guard([&] { *out = new_handle(af::binary(op, tensor(a), tensor(b))); });
}

af_error* af_op_clamp(af_tensor a, double low, double high, af_tensor* out) {
  return guard([&] {
    if (!(low <= high)) throw af::InputError("low is not at most high");
    std::optional<at::Scalar> lo, hi;
    if (std::isfinite(low)) lo = low;
    if (std::isfinite(high)) hi = high;
    *out = new_handle(lo || hi ? at::clamp(tensor(a), lo, hi) : tensor(a).alias());
  });
}

af_error* af_op_affine(af_tensor a, double scale, double shift, af_tensor* out) {
  return guard([&] { *out = new_handle(at::add(at::mul(tensor(a), scale), shift)); });
}

af_error* af_op_where(af_tensor condition, af_tensor a, af_tensor b, af_tensor* out) {
  return guard([&] { *out = new_handle(at::where(tensor(condition).to(at::kBool), tensor(a), tensor(b))); });
}

af_error* af_op_masked_sum(af_tensor a, af_tensor weight, af_tensor* out) {
  return guard([&] {
    const at::Tensor &x = tensor(a), &w = tensor(weight);
    if (x.sizes() != w.sizes()) throw af::InputError("a and weight differ in shape");
    // Masked before the product, so that neither 0 * NaN nor its gradient appears.
    *out = new_handle((at::where(w.ne(0), x, at::zeros({}, x.options())) * w).sum());
  });
}

af_error* af_backward(af_tensor loss) {
  return guard([&] {
    const at::Tensor& l = tensor(loss);
    if (l.numel() != 1)
      throw af::InputError("the loss is no scalar, it has " + std::to_string(l.numel()) + " elements");
    if (!l.requires_grad()) throw af::InputError("the loss has no autograd history; was the forward run with grad?");
    const af::CallersThread here;
    torch::autograd::backward({l}, {});
  });
}

}  // extern "C"
