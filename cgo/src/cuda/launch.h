// The kernels of kernels.cu as operations on tensors, launched on libtorch's current stream. Each has an ATen
// expression beside it in elementwise.cc, head.cc and paged.cc: its reference, and what is computed where kernels() is
// null.
#pragma once
#include <ATen/ATen.h>

#include "../kernels.h"

namespace af {
struct PagedRows;  // paged.h
}

namespace af::cuda {

// Whether t's operations are those of CUDA: it lies on such a device, or a test has the tensors of the CPU stand for
// such (scripted.h).
bool on_device(const at::Tensor& t);

// The kernels loaded on one device. An operation returns false, and has done nothing, where the tensors are not as its
// kernel takes them; arguments are those of the operation of the same name in train.h and paged.h.
class Kernels {
 public:
  virtual ~Kernels() = default;
  // rstd is taken from before with again.
  virtual bool rms_norm(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w,
                        double eps, bool again) const = 0;
  virtual bool rms_norm_backward(const at::Tensor& dx, const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x,
                                 const at::Tensor& w, const at::Tensor& rstd) const = 0;
  // qkv [T, *]: its first heads heads of 2 * cos.size(1) numbers.
  virtual bool rope(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, int64_t heads,
                    int direction) const = 0;
  virtual bool swiglu(const at::Tensor& act, const at::Tensor& gate_up) const = 0;
  virtual bool swiglu_backward(const at::Tensor& d_gate_up, const at::Tensor& act, const at::Tensor& gate_up,
                               const at::Tensor& d_act) const = 0;
  // logits [n, V] float32, contiguous, before the scale; target [n] int64; logprob, entropy, lse [n] float32.
  virtual bool head_forward(const at::Tensor& logits, const at::Tensor& target, double scale, const at::Tensor& logprob,
                            const at::Tensor& entropy, const at::Tensor& lse) const = 0;
  // The gradient [n, V] of type, float32 or bfloat16, as a view of the logits' own memory; undefined where it was not
  // made.
  virtual at::Tensor head_backward(const at::Tensor& logits, const at::Tensor& target, const at::Tensor& lse,
                                   const at::Tensor& entropy, const at::Tensor& d_logprob, const at::Tensor& d_entropy,
                                   double scale, at::ScalarType type) const = 0;
  // One step over [n] float32; rounded [n] bfloat16, or undefined.
  virtual bool adamw(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
                     const at::Tensor& rounded, const kernel::AdamW& numbers) const = 0;
  virtual bool attend_paged(const PagedRows& rows, const at::Tensor& q, const at::Tensor& kv, const at::Tensor& out,
                            int64_t kv_heads, int64_t head_dim) const = 0;
};

// Those of t's device, loaded at the first call; null for the CPU, with AGENTFLY_CUDA_KERNELS=0, and where the library
// carries none for this device, which is said once on standard error.
const Kernels* kernels(const at::Tensor& t);

}  // namespace af::cuda

namespace af {

// product.cc asks libtorch anew which products it has, at the next one. For tests.
void probe_products_again();

}  // namespace af
