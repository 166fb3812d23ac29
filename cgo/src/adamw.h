// One step of AdamW over a part of the flat buffers, on any device.
#pragma once
#include "internal.h"
#include "kernels.h"

namespace af {

// The numbers of one step, as the kernels take them and as ATen's operator does.
struct StepNumbers {
  kernel::AdamW kernel;
  af_adamw_config config;
  double lr;
  at::Tensor count,
      grad_scale;  // [] float32 on the device, of ATen's; the gradient is divided by grad_scale, undefined for 1
};

// Of step t, from 1; the gradient is multiplied by gradient_scale. Those of ATen's are made where aten says so.
StepNumbers step_numbers(const af_adamw_config& c, int64_t t, double lr, double gradient_scale, at::Device device,
                         bool aten);

// Steps parameters p [n] by gradients g, which are cleared, with moments m and v; all float32. rounded [n] gets p in
// its own type where it is defined. One pass over the buffers: our kernel's on CUDA, else ATen's and a copy.
void adamw(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
           const at::Tensor& rounded, const StepNumbers& n);

// The same on the CPU's kernels, without rounded.
void adamw_on_kernels(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
                      const StepNumbers& n);

}  // namespace af
