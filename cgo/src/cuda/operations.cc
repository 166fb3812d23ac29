// One operation of the training path on numbers of the caller's: tests hold kernels against ATen's expressions with it.
#include <ATen/core/grad_mode.h>

#include <string>

#include "../adamw.h"
#include "../paged.h"
#include "../train.h"
#include "scripted.h"

namespace af {
namespace {

constexpr int64_t kMargin = 32;     // elements before and behind a tensor
constexpr double kUntouched = 777;  // what they hold

// The caller's buffers as tensors of a device, each between margins, which no operation may touch.
class Buffers {
 public:
  Buffers(at::Device device, float* const* data, const int64_t* sizes, int count, int64_t shift)
      : device_(device), data_(data), sizes_(sizes), tensors_(count), margins_(count), shift_(shift) {}

  const at::Tensor& operator()(int i, at::ScalarType type) {
    const int64_t rows = sizes_[2 * i], columns = sizes_[2 * i + 1], n = rows * columns;
    margins_.at(i) = at::full({n + 2 * kMargin + shift_}, kUntouched, at::TensorOptions(type).device(device_));
    tensors_[i] = margins_[i].narrow(0, kMargin + shift_, n).view({rows, columns});
    return tensors_[i].copy_(at::from_blob(data_[i], {rows, columns}, at::kFloat));
  }

  void back() const {
    for (size_t i = 0; i < tensors_.size(); i++) {
      if (!tensors_[i].defined()) continue;
      const at::Tensor& t = tensors_[i];
      at::from_blob(data_[i], t.sizes(), at::kFloat).copy_(t);
      const int64_t before = kMargin + shift_, n = t.numel();
      const at::Tensor margins =
          at::cat({margins_[i].narrow(0, 0, before), margins_[i].narrow(0, before + n, kMargin)});
      if (!at::full_like(margins, kUntouched).equal(margins))
        throw std::runtime_error("the memory around buffer " + std::to_string(i) + " was written to");
    }
  }

 private:
  at::Device device_;
  float* const* data_;
  const int64_t* sizes_;
  std::vector<at::Tensor> tensors_, margins_;
  int64_t shift_;
};

at::Tensor as_heads(const at::Tensor& x, int64_t heads) { return x.unflatten(1, {heads, -1}); }

void run(const std::string& what, af_model& m, at::ScalarType type, Buffers& b, int64_t heads, double number) {
  const at::ScalarType f = at::kFloat;
  if (what == "rms_norm") {
    const at::Tensor x = as_heads(b(0, type), heads), w = b(1, type).view({-1});
    rms_norm(m, x, w, as_heads(b(2, type), heads), b(3, f));
    rms_norm_again(m, x, w, as_heads(b(4, type), heads), b(5, f));
  } else if (what == "rms_norm_backward") {
    rms_norm_backward(m, as_heads(b(0, type), heads), b(1, f).view({-1}), as_heads(b(2, type), heads),
                      as_heads(b(3, type), heads), b(4, type).view({-1}), b(5, f));
  } else if (what == "rope") {
    Plan plan;
    const at::Tensor& x = b(0, type);
    plan.T = x.size(0), plan.cos_T = b(1, f), plan.sin_T = b(2, f);
    m.config.head_dim = 2 * plan.cos_T.size(1);
    rope(m, plan, x, heads, static_cast<int>(number));
  } else if (what == "swiglu") {
    swiglu(m, b(0, type), b(1, type));
  } else if (what == "swiglu_backward") {
    swiglu_backward(m, b(0, type), b(1, type), b(2, type), b(3, type));
  } else if (what == "head") {
    Plan plan;
    const at::Tensor hidden = b(0, type), weight = b(1, type);
    plan.N = hidden.size(0), plan.logit_scale = 1 / number, plan.row_target_N = b(2, f).view({-1}).to(at::kLong);
    const HeadResult r = head(m, weight, plan, hidden);
    b(5, f).copy_(r.logprob_N.unsqueeze(1)), b(6, f).copy_(r.entropy_N.unsqueeze(1)),
        b(7, f).copy_(r.lse_N.unsqueeze(1));
    m.grad.head_VD = b(9, f);
    b(8, f).copy_(head_backward(m, weight, plan, hidden, r, b(3, f).view({-1}), b(4, f).view({-1})));
  } else if (what == "adamw") {
    const auto flat = [&](int i, at::ScalarType t) { return b(i, t).view({-1}); };
    const at::Tensor p = flat(0, f), g = flat(1, f), avg = flat(2, f), avg_sq = flat(3, f);
    const at::Tensor rounded = type == f ? at::Tensor() : flat(4, type);
    adamw(p, g, avg, avg_sq, rounded, step_numbers({0.9, 0.95, 1e-8, 0.1, 0}, heads, 1e-2, number));
  } else if (what == "paged") {  // of qkv, whose first heads are the queries
    const auto ints = [&](int i) { return b(i, f).to(at::kInt); };
    const at::Tensor &qkv = b(0, type), &kv = b(1, type), &out = b(2, type);
    m.config.num_heads = heads, m.config.head_dim = out.size(1) / heads;
    m.config.num_kv_heads = kv.size(1) / 2 / m.config.head_dim;
    PagedRows rows{ints(3).view({-1}), ints(4).view({-1}), ints(5).view({-1}), ints(6), static_cast<int64_t>(number)};
    rows.most = rows.count_N.max().item<int32_t>();
    attend_paged(m, rows, qkv.narrow(1, 0, out.size(1)), kv, out);
  } else {
    throw InputError("there is no operation " + what);
  }
}

}  // namespace
}  // namespace af

extern "C" af_error* af_cuda_operation(const char* operation, int device, int dtype, float* const* buffers,
                                       const int64_t* sizes, int count, int64_t shift, int64_t heads, double number) {
  return af::guard([&] {
    at::NoGradGuard mode;
    af::check_device(device);
    auto m = std::make_shared<af_model>();
    if (device >= 0) m->device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    m->path = af::Path::kSegments;
    m->dtype = dtype == AF_BF16 ? at::kBFloat16 : at::kFloat;
    m->config.rms_norm_eps = 1e-6;
    af::Buffers b(m->device, buffers, sizes, count, shift);
    af::run(operation, *m, m->dtype, b, heads, number);
    b.back();
  });
}
