// Attention over a cache of keys and values that lie in blocks, as an engine's steps need it.
#pragma once
#include "internal.h"

namespace af {

// The rows of a step. Each sees the first keys of a sequence, whose keys lie in blocks of the cache that are anywhere.
// The tensors are int32, contiguous, on the model's device.
struct PagedRows {
  at::Tensor row_N;                  // the rows of q and out
  at::Tensor sequence_N;             // each one's row of the table
  at::Tensor count_N;                // how many keys it sees, at least 1
  at::Tensor table_SB;               // key p of a sequence lies in its block p / block_size
  int64_t block_size = 0, most = 0;  // keys of a block; the largest count, which on the host sizes a launch
};

// out [R, HE] = attention of q [R, HE] for the rows that row_N names; others are not touched. kv [slots, 2KE],
// contiguous: slot block * block_size + p % block_size holds the K heads of key p and then those of its value. The
// scale is 1 / sqrt(E). q, kv and out are float32 or bfloat16, all of one type, and sums float32. A row of q or out may
// be part of a longer one. The order of a row's sums depends on its count alone: whatever other rows there are, it has
// the same bits.
void attend_paged(const af_model& m, const PagedRows& rows, const at::Tensor& q, const at::Tensor& kv,
                  const at::Tensor& out);

}  // namespace af
