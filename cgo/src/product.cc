// Matrix products of the training path in float32 and bfloat16.
//
// A CPU without instructions for bfloat16 multiplies the rounded numbers in float32 and rounds the result once, which
// is what the instructions of others do.
#include <ATen/Parallel.h>

#include "simd.h"
#include "train.h"

// oneDNN's product of any type, result = beta result + alpha a b. libtorch exports it without a header; where a version
// does not, the symbol is null.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result, float beta,
                                         float alpha);
}

namespace af {
namespace {

// MKL takes its kernels for AVX2 on AMD's processors, so that oneDNN's for AVX-512 are twice as fast there.
bool use_onednn(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kLeast = 1 << 25;  // multiplications
  if (!y.device().is_cpu() || !y.is_contiguous() || y.scalar_type() != at::kFloat || a.scalar_type() != at::kFloat ||
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
  if (t.scalar_type() == at::kFloat || !t.device().is_cpu()) return false;
#ifdef AF_X86
  static const bool native = has_avx512() && __builtin_cpu_supports("avx512bf16");
  return !native;
#else
  return true;
#endif
}

at::Tensor wide(const at::Tensor& t) { return t.to(at::kFloat); }

}  // namespace

void plain_product(at::Tensor y, const at::Tensor& a, const at::Tensor& b, bool add) {
  if (add) {
    at::addmm_out(y, y, a, b);
  } else {
    at::mm_out(y, a, b);
  }
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (through_float(b)) return at::mm(wide(a), wide(b)).to(b.scalar_type());
  return at::mm(a.to(b.scalar_type()), b);
}

at::Tensor product_float(const at::Tensor& a, const at::Tensor& b) {
  if (through_float(b)) return at::matmul(wide(a), wide(b));
  return wide(at::matmul(a.to(b.scalar_type()), b));
}

void product_out(at::Tensor y, const at::Tensor& a, const at::Tensor& b) {
  if (use_onednn(y, a, b)) {
    onednn(y, a, b, false);
  } else if (y.scalar_type() == a.scalar_type() && a.scalar_type() == b.scalar_type() && !through_float(b)) {
    at::mm_out(y, a, b);
  } else {
    y.copy_(through_float(b) ? at::mm(wide(a), wide(b)) : product(a, b));
  }
}

void product_add(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, double scale) {
  if (scale == 1 && use_onednn(y, a, b)) {
    onednn(y, a, b, true);
  } else if (y.scalar_type() == a.scalar_type() && a.scalar_type() == b.scalar_type() && !through_float(b)) {
    y.addmm_(a, b, 1, scale);
  } else if (through_float(b) && y.scalar_type() == at::kFloat) {
    y.addmm_(wide(a), wide(b), 1, scale);
  } else if (y.device().is_cpu() && y.is_contiguous() && y.scalar_type() == at::kFloat &&
             b.scalar_type() == at::kBFloat16) {
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
