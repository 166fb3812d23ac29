// The operators of libtorch that only CUDA has, for tensors of the CPU and without numbers (meta): what the library
// calls on a device runs without one. They check what CUDA's check of their arguments, and multiply in float32.
//
// $STAND_INS says what they do as another version or a fault: "narrow-addmm" refuses a float32 sum of bfloat16
// products, "slow-backward" has each backward of flash attention take a millisecond.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/version.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool asked(const char* what) {
  const char* e = std::getenv("STAND_INS");
  return e != nullptr && std::strcmp(e, what) == 0;
}

// ---- products ----

void check_product(const Tensor& a, const Tensor& b, at::ScalarType type) {
  TORCH_CHECK(!at::globalContext().deterministicAlgorithms(), "cuBLAS: no deterministic workspace is set");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "factors of two types: ", a.scalar_type(), " and ", b.scalar_type());
  TORCH_CHECK(type == a.scalar_type() || (type == at::kFloat && a.scalar_type() == at::kBFloat16), "out_dtype ", type,
              " of factors of ", a.scalar_type());
}

Tensor& mm_out(const Tensor& a, const Tensor& b, at::ScalarType type, Tensor& out) {
  check_product(a, b, type);
  TORCH_CHECK(out.scalar_type() == type, "mm: out is of ", out.scalar_type());
  return at::mm_out(out, a.to(type), b.to(type));
}
Tensor mm(const Tensor& a, const Tensor& b, at::ScalarType type) {
  check_product(a, b, type);
  return at::mm(a.to(type), b.to(type));
}
Tensor bmm(const Tensor& a, const Tensor& b, at::ScalarType type) {
  check_product(a, b, type);
  return at::bmm(a.to(type), b.to(type));
}
Tensor& addmm_out(const Tensor& sum, const Tensor& a, const Tensor& b, at::ScalarType type, const at::Scalar& beta,
                  const at::Scalar& alpha, Tensor& out) {
  check_product(a, b, type);
  TORCH_CHECK(out.scalar_type() == type, "addmm: out is of ", out.scalar_type());
  TORCH_CHECK(sum.scalar_type() == a.scalar_type() || (sum.scalar_type() == type && !asked("narrow-addmm")),
              "addmm: self dtype must match mat1 dtype");
  return at::addmm_out(out, sum.to(type), a.to(type), b.to(type), beta, alpha);
}

// ---- flash attention ----

struct Sequence {  // float32, [H, L or A, E]
  int64_t q0, L, k0, A;
  Tensor q, k, v, hidden;
};

void check_flash(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_q, const Tensor& cu_k,
                 int64_t max_q) {
  TORCH_CHECK(q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf, "flash: bfloat16 and float16 only");
  TORCH_CHECK(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(), "flash: one type");
  TORCH_CHECK(cu_q.scalar_type() == at::kInt && cu_k.scalar_type() == at::kInt, "flash: cu_seqlens are int32");
  TORCH_CHECK(cu_q.is_contiguous() && cu_k.is_contiguous(), "flash: cu_seqlens are contiguous");
  TORCH_CHECK(cu_q.device() == q.device() && cu_k.device() == q.device(), "flash: cu_seqlens lie on the device");
  TORCH_CHECK(q.dim() == 3 && q.stride(2) == 1 && k.stride(2) == 1 && v.stride(2) == 1, "flash: last stride 1");
  TORCH_CHECK(q.size(1) % k.size(1) == 0, "flash: heads of q are a multiple of those of k");
  TORCH_CHECK(q.size(2) % 8 == 0 && q.size(2) <= 256, "flash: head_dim ", q.size(2));
  TORCH_CHECK(max_q > 1 || q.size(1) == k.size(1),
              "flash: of grouped heads and one query a sequence lse is laid out in another way");
}

template <class F>
void each(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_q, const Tensor& cu_k, const F& f) {
  const int64_t groups = q.size(1) / k.size(1);
  const int *cq = cu_q.const_data_ptr<int>(), *ck = cu_k.const_data_ptr<int>();
  for (int64_t i = 0; i + 1 < cu_q.numel(); i++) {
    const int64_t L = cq[i + 1] - cq[i], A = ck[i + 1] - ck[i];
    const auto rows = [](const Tensor& t, int64_t from, int64_t n) {
      return t.narrow(0, from, n).to(at::kFloat).transpose(0, 1);
    };
    f(Sequence{cq[i], L, ck[i], A, rows(q, cq[i], L), rows(k, ck[i], A).repeat_interleave(groups, 0),
               rows(v, ck[i], A).repeat_interleave(groups, 0), at::ones({L, A}, at::kBool).triu(A - L + 1)});
  }
}

double scale_of(const Tensor& q, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2))));
}
Tensor scores(const Sequence& s, double scale) {
  return at::matmul(s.q, s.k.transpose(1, 2))
      .mul_(scale)
      .masked_fill_(s.hidden, -std::numeric_limits<float>::infinity());
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> flash_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                                 const OptionalTensor& cu_q, const OptionalTensor& cu_k,
                                                                 int64_t max_q, int64_t max_k, double dropout,
                                                                 bool causal, bool, std::optional<double> scale,
                                                                 std::optional<int64_t>, std::optional<int64_t>,
                                                                 const OptionalTensor&, const OptionalTensor&
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
                                                                 ,
                                                                 const OptionalTensor&, std::optional<int64_t>
#endif
) {
  TORCH_CHECK(cu_q && cu_k && dropout == 0 && causal, "flash: only sequences of variable lengths stand in");
  check_flash(q, k, v, *cu_q, *cu_k, max_q);
  Tensor out = at::empty(q.sizes(), q.options()),
         lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  if (!q.is_meta()) {
    each(q, k, v, *cu_q, *cu_k, [&](const Sequence& s) {
      TORCH_CHECK(s.L <= max_q && s.A <= max_k, "flash: max_q or max_k is too small");
      const Tensor z = scores(s, scale_of(q, scale)), l = at::logsumexp(z, {2});
      out.narrow(0, s.q0, s.L).copy_(at::matmul(at::exp(z - l.unsqueeze(2)), s.v).transpose(0, 1));
      lse.narrow(1, s.q0, s.L).copy_(l);
    });
  }
  const Tensor state = at::empty({2}, q.options().dtype(at::kUInt64));
  return {out, lse, state, at::empty({}, state.options()), at::empty({0}, q.options())};
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor& d_out, const Tensor& q, const Tensor& k,
                                                  const Tensor& v, const Tensor& out, const Tensor& lse,
                                                  const Tensor& cu_q, const Tensor& cu_k, int64_t max_q, int64_t,
                                                  double, bool, const Tensor&, const Tensor&,
                                                  std::optional<double> scale, std::optional<int64_t>,
                                                  std::optional<int64_t>) {
  check_flash(q, k, v, cu_q, cu_k, max_q);
  if (asked("slow-backward")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  TORCH_CHECK(lse.size(0) == q.size(1) && lse.size(1) == q.size(0) && lse.is_contiguous(), "flash: lse is [H, T]");
  TORCH_CHECK(at::globalContext().deterministicAlgorithms(), "flash: d q is summed with atomics");
  TORCH_CHECK(!at::globalContext().deterministicFillUninitializedMemory(), "flash: every new tensor is filled");
  Tensor dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()),
         dv = at::empty(v.sizes(), v.options());
  if (q.is_meta()) return {dq, dk, dv};
  const int64_t K = k.size(1), E = q.size(2);
  each(q, k, v, cu_q, cu_k, [&](const Sequence& s) {
    const auto rows = [&](const Tensor& t) { return t.narrow(0, s.q0, s.L).to(at::kFloat).transpose(0, 1); };
    const auto shared = [&](const Tensor& t) { return t.reshape({K, -1, s.A, E}).sum(1).transpose(0, 1); };
    const double by = scale_of(q, scale);
    const Tensor p = at::exp(scores(s, by) - lse.narrow(1, s.q0, s.L).unsqueeze(2)), g = rows(d_out);
    const Tensor ds = p * (at::matmul(g, s.v.transpose(1, 2)) - (g * rows(out)).sum(2, true)) * by;
    dq.narrow(0, s.q0, s.L).copy_(at::matmul(ds, s.k).transpose(0, 1));
    dk.narrow(0, s.k0, s.A).copy_(shared(at::matmul(ds.transpose(1, 2), s.q)));
    dv.narrow(0, s.k0, s.A).copy_(shared(at::matmul(p.transpose(1, 2), g)));
  });
  return {dq, dk, dv};
}

// ---- without numbers alone: operators whose shapes only libtorch's Python knows ----

Tensor segment_reduce(const Tensor& data, c10::string_view, const OptionalTensor&, const OptionalTensor&,
                      const OptionalTensor& offsets, int64_t, bool, const std::optional<at::Scalar>&) {
  std::vector<int64_t> sizes = data.sizes().vec();
  sizes[0] = offsets->numel() - 1;
  return at::empty(sizes, data.options());
}
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.at(dim) = index.numel();
  return at::empty(sizes, x.options());
}
Tensor& index_select_out(const Tensor&, int64_t, const Tensor&, Tensor& out) { return out; }
Tensor& logical_and_out(const Tensor&, const Tensor&, Tensor& out) { return out; }
Tensor& abs_out(const Tensor&, Tensor& out) { return out; }
Tensor where(const Tensor&, const Tensor& a, const Tensor& b) {
  return at::empty(at::infer_size(a.sizes(), b.sizes()), a.options());
}

void all(torch::Library& m) {
  m.impl("_flash_attention_forward", flash_forward);
  m.impl("_flash_attention_backward", flash_backward);
  m.impl("mm.dtype", mm);
  m.impl("mm.dtype_out", mm_out);
  m.impl("bmm.dtype", bmm);
  m.impl("addmm.dtype_out", addmm_out);
}

void shapes(torch::Library& m) {
  const auto add = [&](const char* name, const char* overload, auto&& f) {
    const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload});
    if (op.has_value() && !op->hasKernelForDispatchKey(c10::DispatchKey::Meta))
      m.impl((std::string(name) + (*overload == 0 ? "" : ".") + overload).c_str(), f);
  };
  add("segment_reduce", "", segment_reduce);
  add("index_select", "", index_select);
  add("index_select", "out", index_select_out);
  add("logical_and", "out", logical_and_out);
  add("abs", "out", abs_out);
  add("where", "self", where);
}

struct Registered {
  torch::Library cpu{torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__};
  torch::Library meta{torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__};
};
std::unique_ptr<Registered> registered;

}  // namespace

// Registers the operators, or takes them back.
extern "C" void af_stand_in(int on) {
  registered.reset();
  if (on == 0) return;
  registered = std::make_unique<Registered>();
  all(registered->cpu);
  all(registered->meta);
  shapes(registered->meta);
}
