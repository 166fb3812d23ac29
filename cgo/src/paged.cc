// Attention over a cache in blocks: the kernel of cuda/paged.h where there is one, and else the ATen expression, which
// is its reference and takes one row after another.
//
// Suffixes besides those of internal.h: G query heads that share a key's head, A keys that a row sees, S sequences,
// B blocks.
#include "paged.h"

#include <cmath>

#include "cuda/launch.h"

namespace af {
namespace {

// The slots of a sequence's first count keys; block_B are its blocks.
at::Tensor slots_of(const at::Tensor& block_B, int64_t block_size, int64_t count) {
  const at::Tensor first_B = block_B.narrow(0, 0, (count + block_size - 1) / block_size).to(at::kLong) * block_size;
  return (first_B.unsqueeze(1) + at::arange(block_size, first_B.options())).flatten().narrow(0, 0, count);
}

}  // namespace

void attend_paged(const af_model& m, const PagedRows& rows, const at::Tensor& q, const at::Tensor& kv,
                  const at::Tensor& out) {
  const int64_t N = rows.row_N.numel(), K = m.config.num_kv_heads, E = m.config.head_dim;
  if (N == 0) return;
  const cuda::Kernels* k = cuda::kernels(q);
  if (k != nullptr && k->attend_paged(rows, q, kv, out, K, E)) return;
  const double scale = 1 / std::sqrt(static_cast<double>(E));
  const at::Tensor row_N = rows.row_N.cpu(), sequence_N = rows.sequence_N.cpu(), count_N = rows.count_N.cpu();
  for (int64_t i = 0; i < N; i++) {
    const int64_t row = row_N.const_data_ptr<int32_t>()[i], sequence = sequence_N.const_data_ptr<int32_t>()[i];
    const int64_t count = count_N.const_data_ptr<int32_t>()[i];
    const at::Tensor slot_A = slots_of(rows.table_SB.select(0, sequence), rows.block_size, count);
    const at::Tensor kv_AKE = kv.index_select(0, slot_A).to(at::kFloat).unflatten(1, {2 * K, E});
    const at::Tensor k_KEA = kv_AKE.narrow(1, 0, K).permute({1, 2, 0}), v_KAE = kv_AKE.narrow(1, K, K).transpose(0, 1);
    const at::Tensor q_KGE = q.select(0, row).to(at::kFloat).unflatten(0, {K, -1, E});
    const at::Tensor p_KGA = at::softmax(at::matmul(q_KGE, k_KEA).mul_(scale), -1);
    out.select(0, row).copy_(at::matmul(p_KGA, v_KAE).flatten());
  }
}

}  // namespace af
