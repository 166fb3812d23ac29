// One step of AdamW over a part of the flat buffers, on any device.
#pragma once
#include "internal.h"
#include "kernels.h"

namespace af {

// The numbers of one step, as the kernels take them and as ATen's operator is given them.
struct StepNumbers {
  kernel::AdamW kernel;
  af_adamw_config config;
  double lr, gradient_scale, step;
};

// Of step t, from 1; the gradient is multiplied by gradient_scale.
StepNumbers step_numbers(const af_adamw_config& c, int64_t t, double lr, double gradient_scale);

// Steps parameters p [n] by gradients g, which are cleared, with moments m and v; all float32. rounded [n] gets p in
// its own type where it is defined. One pass over the buffers: our kernel's on CUDA, else ATen's and a copy.
void adamw(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
           const at::Tensor& rounded, const StepNumbers& n);

// The same on the CPU's kernels, without rounded.
void adamw_on_kernels(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
                      const StepNumbers& n);

}  // namespace af
