// Matrix products of the training path in float32 and bfloat16.
//
// A CPU without instructions for bfloat16 multiplies the rounded numbers in float32 and rounds the result once, which
// is what the instructions of others do. A product of bfloat16 whose result is float32 is never rounded to bfloat16 on
// its way: MKL and CUDA have such a product, everything else multiplies the widened numbers.
//
// On CUDA (cuda::on_device) a product goes to libtorch whole: cuBLAS multiplies bfloat16 into float32, and adds to
// float32, without a tensor between.
#include <ATen/Parallel.h>

#include <atomic>

#include "cuda/launch.h"
#include "linear.h"
#include "profile.h"
#include "simd.h"
#include "train.h"

// oneDNN's product of any type, result = beta result + alpha a b. libtorch exports it without a header; where a version
// does not, the symbol is null.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result, float beta,
                                         float alpha);
}

// MKL's product of bfloat16 with a float32 result, by columns: c = alpha op(a) op(b) + beta c. libtorch exports it
// without a header; where a version does not, the symbol is null.
extern "C" __attribute__((weak)) void gemm_bf16bf16f32_(const char* op_a, const char* op_b, const int* m, const int* n,
                                                        const int* k, const float* alpha, const void* a,
                                                        const int* stride_a, const void* b, const int* stride_b,
                                                        const float* beta, float* c, const int* stride_c);

namespace af {
namespace {

// MKL takes its kernels for AVX2 on AMD's processors, so that oneDNN's for AVX-512 are twice as fast there.
bool use_onednn(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kLeast = 1 << 25;  // multiplications
  if (!y.is_contiguous() || y.scalar_type() != at::kFloat || a.scalar_type() != at::kFloat ||
      b.scalar_type() != at::kFloat || a.size(0) * a.size(1) * b.size(1) < kLeast)
    return false;
#ifdef AF_X86
  static const bool faster = at::native::mkldnn_matmul != nullptr && has_avx512() && __builtin_cpu_is("amd") &&
                             at::globalContext().userEnabledMkldnn();
  return faster;
#else
  return false;
#endif
}

// plain_product on oneDNN, in pieces of few sizes. Every new size costs oneDNN a millisecond or two and a megabyte, and
// the tokens of a micro-batch are ever others: as rows of a they are cut into powers of two, as the inner dimension
// into pieces as MKL takes them, because one long chain of additions is twice as far from the exact sum. libtorch, and
// so MKL, gets the rest.
void onednn(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, bool add) {
  constexpr int64_t kPiece = 192, kMost = 1024, kLeast = 64;
  const int64_t M = a.size(0), K = a.size(1), pieces = K / kPiece * kPiece;
  const bool tokens = a.stride(1) == 1;  // else a is a transposed view, whose rows are a weight's
  int64_t row = 0;
  for (int64_t rows = tokens ? kMost : M; pieces > 0 && rows >= kLeast; rows /= 2) {
    for (; row + rows <= M; row += rows) {
      const at::Tensor y_rows = y.narrow(0, row, rows), a_rows = a.narrow(0, row, rows);
      for (int64_t k = 0; k < pieces; k += kPiece) {
        const float beta = add || k > 0 ? 1 : 0;
        at::native::mkldnn_matmul(a_rows.narrow(1, k, kPiece), b.narrow(0, k, kPiece), y_rows, beta, 1);
      }
      if (pieces < K)
        plain_product(y_rows, a_rows.narrow(1, pieces, K - pieces), b.narrow(0, pieces, K - pieces), true);
    }
  }
  if (row < M) plain_product(y.narrow(0, row, M - row), a.narrow(0, row, M - row), b, add);
}

bool through_float(const at::Tensor& t) {
  if (t.scalar_type() == at::kFloat || cuda::on_device(t)) return false;
#ifdef AF_X86
  static const bool native = has_avx512bf16();
  return !native;
#else
  return true;
#endif
}

at::Tensor wide(const at::Tensor& t) { return t.to(at::kFloat); }

// MKL has bfloat16 kernels for Intel's processors; on AMD's it takes those for AVX2, which have no such instructions.
bool has_mkl_half(const at::Tensor& b) {
  if (b.scalar_type() != at::kBFloat16) return false;
#ifdef AF_X86
  static const bool fast = gemm_bf16bf16f32_ != nullptr && has_avx512bf16() && __builtin_cpu_is("intel");
  return fast;
#else
  return false;
#endif
}

bool use_mkl_half(const at::Tensor& y, const at::Tensor& b) { return y.scalar_type() == at::kFloat && has_mkl_half(b); }

// A matrix as MKL takes it, with the tensor that keeps its numbers.
struct Operand {
  explicit Operand(const at::Tensor& t) : numbers(t) {
    const int64_t rows = t.size(0), columns = t.size(1), down = t.stride(0), right = t.stride(1);
    if ((right == 1 || columns == 1) && (rows == 1 || down >= columns)) {
      op = 'N', stride = static_cast<int>(rows == 1 ? columns : down);
    } else if ((down == 1 || rows == 1) && (columns == 1 || right >= rows)) {
      op = 'T', stride = static_cast<int>(columns == 1 ? rows : right);
    } else {
      numbers = t.clone(at::MemoryFormat::Contiguous), op = 'N', stride = static_cast<int>(columns);
    }
  }
  at::Tensor numbers;
  char op;
  int stride;
};

// y = scale a b, or y += with add; y [M, N] float32 with contiguous rows. By columns all of it is transposed, so b
// comes first.
void mkl_half(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, double scale, bool add) {
  TORCH_INTERNAL_ASSERT(y.stride(1) == 1 && a.size(1) == b.size(0));
  if (y.numel() == 0) return;
  const Operand left(b), right(a.to(at::kBFloat16));
  const int m = static_cast<int>(b.size(1)), n = static_cast<int>(a.size(0)), k = static_cast<int>(a.size(1));
  const int stride = static_cast<int>(y.size(0) == 1 ? y.size(1) : y.stride(0));
  const float alpha = static_cast<float>(scale), beta = add ? 1 : 0;
  gemm_bf16bf16f32_(&left.op, &right.op, &m, &n, &k, &alpha, left.numbers.const_data_ptr(), &left.stride,
                    right.numbers.const_data_ptr(), &right.stride, &beta, elements<float>(y), &stride);
}

// at::matmul of bfloat16 numbers with a float32 result, leading dimensions broadcast.
at::Tensor batched_float(const at::Tensor& a, const at::Tensor& b) {
  const auto lead = [](const at::Tensor& t) { return t.sizes().slice(0, t.dim() - 2); };
  const std::vector<int64_t> batch = at::infer_size(lead(a), lead(b));
  const auto with = [&](int64_t rows, int64_t columns) {
    std::vector<int64_t> sizes = batch;
    sizes.push_back(rows), sizes.push_back(columns);
    return sizes;
  };
  const int64_t M = a.size(-2), K = a.size(-1), N = b.size(-1);
  const at::Tensor x = a.expand(with(M, K)).reshape({-1, M, K}), y = b.expand(with(K, N)).reshape({-1, K, N});
  return (cuda::on_device(x) ? at::bmm(x.to(y.scalar_type()), y, at::kFloat) : at::bmm(wide(x), wide(y)))
      .view(with(M, N));
}

// ---- CUDA ----

std::atomic<int> adds_wide{-1};  // whether addmm takes a float32 sum of bfloat16 products; -1: not asked yet

// Operators of torch before 2.11 may refuse a sum of another type than the factors'.
bool has_wide_addmm(const at::Tensor& like) {
  if (adds_wide < 0) {
    const at::Tensor sum = at::zeros({16, 16}, like.options().dtype(at::kFloat)),
                     a = at::zeros({16, 16}, like.options());
    try {
      at::addmm_out(const_cast<at::Tensor&>(sum), sum, a, a, at::kFloat);
      adds_wide = 1;
    } catch (const c10::Error&) {
      adds_wide = 0;
    }
  }
  return adds_wide == 1;
}

// y = a b, of b's type or float32
void device_product(at::Tensor y, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(b.scalar_type());
  if (y.scalar_type() == b.scalar_type()) {
    at::mm_out(y, x, b);
  } else {
    at::mm_out(y, x, b, y.scalar_type());
  }
}

void device_product_add(at::Tensor y, const at::Tensor& a, const at::Tensor& b, double scale) {
  const at::Tensor x = a.to(b.scalar_type());
  if (y.scalar_type() == b.scalar_type()) {
    at::addmm_out(y, y, x, b, 1, scale);
  } else if (has_wide_addmm(b)) {
    at::addmm_out(y, y, x, b, at::kFloat, 1, scale);
  } else {
    y.add_(at::mm(x, b, at::kFloat), scale);
  }
}

}  // namespace

void probe_products_again() { adds_wide = -1; }

void plain_product(at::Tensor y, const at::Tensor& a, const at::Tensor& b, bool add) {
  if (add) {
    at::addmm_out(y, y, a, b);
  } else {
    at::mm_out(y, a, b);
  }
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const StageTimer timer(Stage::kLinear, b.device());
  if (through_float(b)) return at::mm(wide(a), wide(b)).to(b.scalar_type());
  return at::mm(a.to(b.scalar_type()), b);
}

at::Tensor product_float(const at::Tensor& a, const at::Tensor& b) {
  const StageTimer timer(Stage::kLinear, b.device());
  if (b.scalar_type() == at::kFloat) return at::matmul(wide(a), b);
  if (a.dim() > 2 || b.dim() > 2) return batched_float(a, b);
  at::Tensor y = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
  product_out(y, a, b);
  return y;
}

// A result that is rounded to bfloat16 later: where the processor has instructions for bfloat16 and MKL does not use
// them, as on AMD's, their product is twice as fast as that of the widened numbers.
at::Tensor product_wide(const at::Tensor& a, const at::Tensor& b) {
  const StageTimer timer(Stage::kLinear, b.device());
  const bool half = b.device().is_cpu() && b.scalar_type() == at::kBFloat16;
  return half && !through_float(b) && !has_mkl_half(b) ? wide(product(a, b)) : product_float(a, b);
}

void product_out(at::Tensor y, const at::Tensor& a, const at::Tensor& b) {
  const StageTimer timer(Stage::kLinear, b.device());
  if (cuda::on_device(y)) {
    device_product(y, a, b);
  } else if (use_onednn(y, a, b)) {
    onednn(y, a, b, false);
  } else if (y.scalar_type() == a.scalar_type() && a.scalar_type() == b.scalar_type() && !through_float(b)) {
    at::mm_out(y, a, b);
  } else if (y.scalar_type() != at::kFloat) {
    y.copy_(through_float(b) ? at::mm(wide(a), wide(b)) : product(a, b));
  } else if (use_mkl_half(y, b)) {
    mkl_half(y, a, b, 1, false);
  } else {
    product_out(y, wide(a), wide(b));
  }
}

void linear_as_engine(const af_model& m, const at::Tensor& y, const at::Tensor& x, const at::Tensor& w,
                      const at::Tensor& bias, bool add) {
  const StageTimer timer(Stage::kLinear, w.device());
  const Loop loop{at::get_num_threads(), [](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
                    at::parallel_for(0, n, grain, f);
                  }};
  Linear packed;
  packed.pack(loop, w, bias.defined() ? wide(bias) : bias, true, m.pool.get());
  packed.apply(loop, y, x, add);
}

void logits_out(const af_model& m, const at::Tensor& y, const at::Tensor& x, const at::Tensor& w) {
  if (as_engine(m)) return linear_as_engine(m, y, x, w, {}, false);
  product_out(y, x, w.t());
}

void product_add(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, double scale) {
  const StageTimer timer(Stage::kLinear, b.device());
  if (cuda::on_device(y)) {
    device_product_add(y, a, b, scale);
  } else if (scale == 1 && use_onednn(y, a, b)) {
    onednn(y, a, b, true);
  } else if (y.scalar_type() == a.scalar_type() && a.scalar_type() == b.scalar_type() && !through_float(b)) {
    y.addmm_(a, b, 1, scale);
  } else if (through_float(b) && y.scalar_type() == at::kFloat) {
    y.addmm_(wide(a), wide(b), 1, scale);
  } else if (use_mkl_half(y, b) && y.stride(1) == 1) {
    mkl_half(y, a, b, scale, true);
  } else if (y.is_contiguous() && y.scalar_type() == at::kFloat &&
             b.scalar_type() == at::kBFloat16) {  // rounded before it is added: AMD's bfloat16 is twice its float32
    const at::Tensor x = product(a, b);
    float* to = elements<float>(y);
    const bfloat16* from = elements<bfloat16>(x);
    at::parallel_for(0, y.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
      kernel::add(to + begin, from + begin, static_cast<float>(scale), end - begin);
    });
  } else {
    y.add_(through_float(b) ? at::mm(wide(a), wide(b)) : product(a, b), scale);
  }
}

}  // namespace af
