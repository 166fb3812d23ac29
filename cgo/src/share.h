// Tensor parallelism: the ranks of a group compute every layer together, each a share of its heads and of the MLP's
// columns (Megatron-LM, arXiv 1909.08053).
//
// A rank multiplies the tokens of all ranks by the rows of q, k, v, gate and up that make its heads and columns, and
// what comes of these by the columns of o and down that read them. The terms that it gets are summed over the ranks,
// and the sum is added to the residual stream. What lies between the products is one token's own, so it is dealt out by
// tokens (sequence parallelism, arXiv 2205.05198): the residual stream, norms, embeddings and head are computed, and
// kept, once. A rank gathers the tokens of all before a product, and gets the sums of its own behind the next.
//
// The weights of a share are views of the whole ones, its gradients views of the whole gradients, of which a rank
// leaves the rest as it is. The gradients of all ranks add up to the batch's, as those of ranks with batches of their
// own do, so that optimizers, checkpoints and adapters know nothing of it. This holds for key/value heads that several
// ranks need, too: each adds the terms of its own queries.
#pragma once
#include "internal.h"

namespace af {

// How much of every layer a process computes.
struct Share {
  Range heads, kv_heads, columns;  // query heads, key/value heads, columns of the MLP
  bool whole = true;
  bool first = true;  // the biases of o and down are this process's, so that they count once
};
// That of rank of world; InputError where the heads or columns cannot be shared out equally.
Share share_of(const af_model_config& c, int64_t rank, int64_t world);

// Projections that read the same x, whose outputs stand side by side: y = x W^T + bias, and the adapter's share.
struct Projections {
  struct Matrix {
    int64_t rows;
    at::Tensor weight, bias;  // [rows, in], [rows]; undefined where there is none
  };
  std::vector<Matrix> parts;
  LowRank adapter;
};

// What a process computes of a layer: views of its parameters or of their gradients.
struct LayerShare {
  Projections qkv, o, gate_up, down;
  at::Tensor input_norm_D, q_norm_E, k_norm_E, post_norm_D;
};
LayerShare layer_share(const af_model_config& c, const Share& s, const Layer& l, const LayerAdapters& a);

}  // namespace af
