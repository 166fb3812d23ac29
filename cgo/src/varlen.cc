// Attention over a forest as one call of variable lengths a layer, in the form that flash attention takes.
//
// Every segment is one sequence of that call. Its queries are its own tokens, its keys those of its ancestors and then
// its own. The causal mask of flash is aligned at the bottom right: query i of L sees the keys up to A - L + i, which
// are all ancestors and the segment's own tokens up to i, so that the mask of the forest needs no tensor. A key that
// several segments see is gathered once for each of them, and its gradients are summed in the order of the segments:
// the same bits on every run.
//
// The operator of libtorch exists for CUDA alone. The CPU has the same call on ATen, which tests hold against the
// kernels of attention.cc.
//
// Suffixes besides those of train.h: S segments, A gathered keys.
#include <ATen/Context.h>

#include <cmath>
#include <limits>

#include "train.h"

namespace af {
namespace {

struct Heads {  // views of qkv, and the gathered keys
  at::Tensor q_THE, k_AKE, v_AKE;
  double scale;
};

Heads heads_of(const af_model& m, const Plan& plan, const at::Tensor& q, at::Tensor keys) {
  const int64_t H = plan.share.heads.length, K = plan.share.kv_heads.length, E = m.config.head_dim;
  if (plan.varlen.key_token_A.defined()) keys = keys.index_select(0, plan.varlen.key_token_A);
  return {q.unflatten(1, {H, E}), keys.narrow(1, 0, K * E).unflatten(1, {K, E}),
          keys.narrow(1, K * E, K * E).unflatten(1, {K, E}), 1 / std::sqrt(static_cast<double>(E))};
}

// ---- the call on ATen ----

struct Sequence {  // float32
  int64_t q0, L, k0, A;
  at::Tensor q_KGLE, k_K1AE, v_K1AE, hidden_LA;
};

at::Tensor grouped(const at::Tensor& x, int64_t first, int64_t count, int64_t K) {  // [*, H, E] -> [K, G, count, E]
  return x.narrow(0, first, count).to(at::kFloat).unflatten(1, {K, -1}).permute({1, 2, 0, 3});
}
at::Tensor ungrouped(const at::Tensor& x) {  // and back
  return x.permute({2, 0, 1, 3}).flatten(1, 2);
}

template <class F>
void each_sequence(const Heads& h, const Varlen& plan, const F& f) {
  const at::Tensor cu_q = plan.cu_q.cpu(), cu_k = plan.cu_k.cpu();
  const auto *cq = cu_q.const_data_ptr<int32_t>(), *ck = cu_k.const_data_ptr<int32_t>();
  const int64_t K = h.k_AKE.size(1);
  for (int64_t i = 0; i + 1 < cu_q.numel(); i++) {
    Sequence s{cq[i], cq[i + 1] - cq[i], ck[i], ck[i + 1] - ck[i], {}, {}, {}, {}};
    s.q_KGLE = grouped(h.q_THE, s.q0, s.L, K);
    s.k_K1AE = grouped(h.k_AKE, s.k0, s.A, K);
    s.v_K1AE = grouped(h.v_AKE, s.k0, s.A, K);
    s.hidden_LA = at::ones({s.L, s.A}, h.q_THE.options().dtype(at::kBool)).triu(s.A - s.L + 1);
    f(s);
  }
}

at::Tensor sequence_scores(const Heads& h, const Sequence& s) {
  return at::matmul(s.q_KGLE, s.k_K1AE.transpose(2, 3)).mul_(h.scale).masked_fill_(s.hidden_LA, -INFINITY);
}

std::tuple<at::Tensor, at::Tensor> reference_forward(const Heads& h, const Varlen& plan) {
  at::Tensor out_THE = at::empty(h.q_THE.sizes(), h.q_THE.options());
  at::Tensor lse_HT = at::empty({h.q_THE.size(1), h.q_THE.size(0)}, h.q_THE.options().dtype(at::kFloat));
  each_sequence(h, plan, [&](const Sequence& s) {
    const at::Tensor scores = sequence_scores(h, s), lse_KGL = at::logsumexp(scores, {3});
    out_THE.narrow(0, s.q0, s.L).copy_(ungrouped(at::matmul(at::exp(scores - lse_KGL.unsqueeze(3)), s.v_K1AE)));
    lse_HT.narrow(1, s.q0, s.L).copy_(lse_KGL.flatten(0, 1));
  });
  return {out_THE, lse_HT};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> reference_backward(const Heads& h, const Varlen& plan,
                                                                  const at::Tensor& d_out_THE,
                                                                  const at::Tensor& out_THE, const at::Tensor& lse_HT) {
  at::Tensor dq = at::empty(h.q_THE.sizes(), h.q_THE.options()), dk = at::empty(h.k_AKE.sizes(), h.k_AKE.options()),
             dv = at::empty(h.v_AKE.sizes(), h.v_AKE.options());
  const int64_t K = h.k_AKE.size(1);
  each_sequence(h, plan, [&](const Sequence& s) {
    const at::Tensor lse_KGL = lse_HT.narrow(1, s.q0, s.L).unflatten(0, {K, -1});
    const at::Tensor p = at::exp(sequence_scores(h, s) - lse_KGL.unsqueeze(3));
    const at::Tensor d_o = grouped(d_out_THE, s.q0, s.L, K);
    const at::Tensor delta = (d_o * grouped(out_THE, s.q0, s.L, K)).sum(3, true);
    const at::Tensor d_s = (p * (at::matmul(d_o, s.v_K1AE.transpose(2, 3)) - delta)).mul_(h.scale);
    dq.narrow(0, s.q0, s.L).copy_(ungrouped(at::matmul(d_s, s.k_K1AE)));
    dk.narrow(0, s.k0, s.A).copy_(ungrouped(at::matmul(d_s.transpose(2, 3), s.q_KGLE).sum(1, true)));
    dv.narrow(0, s.k0, s.A).copy_(ungrouped(at::matmul(p.transpose(2, 3), d_o).sum(1, true)));
  });
  return {dq, dk, dv};
}

// ---- libtorch's operator ----

// Flash sums d q with atomics unless deterministic algorithms are asked for. They are for this call alone: the setting
// would refuse other operations, and fill every new tensor. It is one of all threads, so that those of a decoder beside
// a backward wait.
class Deterministic {
 public:
  Deterministic()
      : lock_(deterministic_mutex()),
        on_(at::globalContext().deterministicAlgorithms()),
        warn_(at::globalContext().deterministicAlgorithmsWarnOnly()),
        fill_(at::globalContext().deterministicFillUninitializedMemory()) {
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  ~Deterministic() {
    at::globalContext().setDeterministicAlgorithms(on_, warn_);
    at::globalContext().setDeterministicFillUninitializedMemory(fill_);
  }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;

 private:
  const std::lock_guard<std::mutex> lock_;
  const bool on_, warn_, fill_;
};

// Of grouped heads and one query a sequence flash lays lse out in another way. max_q sizes its grid alone.
int64_t flash_max_q(const Varlen& plan) { return std::max<int64_t>(2, plan.max_q); }

std::tuple<at::Tensor, at::Tensor> flash_forward(const Heads& h, const Varlen& plan) {
  auto [out_THE, lse_HT, random_state, unused, debug_mask] =
      at::_flash_attention_forward(h.q_THE, h.k_AKE, h.v_AKE, plan.cu_q, plan.cu_k, flash_max_q(plan), plan.max_k,
                                   /*dropout_p=*/0, /*is_causal=*/true, /*return_debug_mask=*/false, h.scale);
  return {out_THE, lse_HT};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(const Heads& h, const Varlen& plan,
                                                              const at::Tensor& d_out_THE, const at::Tensor& out_THE,
                                                              const at::Tensor& lse_HT) {
  const Deterministic guard;
  const at::Tensor no_random_state = at::zeros({2}, h.q_THE.options().dtype(at::kUInt64));  // read for dropout alone
  const at::Tensor unused = at::zeros({}, no_random_state.options());
  return at::_flash_attention_backward(d_out_THE, h.q_THE, h.k_AKE, h.v_AKE, out_THE, lse_HT, plan.cu_q, plan.cu_k,
                                       flash_max_q(plan), plan.max_k, /*dropout_p=*/0, /*is_causal=*/true,
                                       no_random_state, unused, h.scale);
}

}  // namespace

std::mutex& deterministic_mutex() {
  static std::mutex mutex;
  return mutex;
}

Varlen make_varlen(const af_model& m, const Plan& plan) {
  Varlen v;
  std::vector<int32_t> cu_q{0}, cu_k{0};
  int64_t keys = 0;
  for (const Segment& s : plan.segments) {
    keys += s.before + s.length;
    if (keys > std::numeric_limits<int32_t>::max())
      throw InputError("batch: its segments see more than 2^31 keys in all; make the micro-batch smaller");
    cu_q.push_back(static_cast<int32_t>(s.row + s.length));
    cu_k.push_back(static_cast<int32_t>(keys));
    v.max_q = std::max(v.max_q, s.length);
    v.max_k = std::max(v.max_k, s.before + s.length);
  }
  v.cu_q = to_device(m, cu_q);
  v.cu_k = to_device(m, cu_k);
  if (keys == plan.T && plan.context == nullptr) return v;  // no segment has ancestors: the keys are the tokens
  std::vector<int64_t> token, first(plan.keys() + 1, 0);
  token.reserve(keys);
  for (const Segment& s : plan.segments) {
    auto add = [&](int64_t start, int64_t length) {
      for (int64_t t = start; t < start + length; t++) token.push_back(t);
    };
    for (const Run& r : s.ancestors) add(r.start, r.length);
    add(s.start, s.length);
  }
  for (const int64_t t : token) first[t + 1]++;
  for (int64_t t = 0; t < plan.keys(); t++) first[t + 1] += first[t];
  std::vector<int64_t> next(first.begin(), first.end() - 1), row(keys);
  for (int64_t a = 0; a < keys; a++) row[next[token[a]]++] = a;
  v.key_token_A = to_device(m, token);
  v.row_A = to_device(m, row);
  v.row_begin = to_device(m, first);
  return v;
}

void attention_varlen(const af_model& m, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                      const at::Tensor& out, const at::Tensor& lse) {
  const Heads h = heads_of(m, plan, q, keys);
  const auto [out_THE, lse_HT] =
      m.path == Path::kFlash ? flash_forward(h, plan.varlen) : reference_forward(h, plan.varlen);
  out.copy_(out_THE.flatten(1, 2));
  lse.copy_(lse_HT.t());
}

at::Tensor backward_varlen(const af_model& m, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                           const at::Tensor& out, const at::Tensor& lse, const at::Tensor& d_out,
                           const at::Tensor& d_q) {
  const int64_t H = plan.share.heads.length, E = m.config.head_dim;
  const Heads h = heads_of(m, plan, q, keys);
  const auto as_THE = [&](const at::Tensor& x) { return x.unflatten(1, {H, E}); };
  const at::Tensor lse_HT = lse.t().contiguous();
  const auto [dq, dk, dv] = m.path == Path::kFlash
                                ? flash_backward(h, plan.varlen, as_THE(d_out), as_THE(out), lse_HT)
                                : reference_backward(h, plan.varlen, as_THE(d_out), as_THE(out), lse_HT);
  d_q.copy_(dq.flatten(1, 2));
  at::Tensor d_keys = at::cat({dk.flatten(1, 2), dv.flatten(1, 2)}, 1);  // [A, 2KE]
  if (plan.varlen.key_token_A.defined()) {
    const at::Tensor by_token = d_keys.index_select(0, plan.varlen.row_A).to(at::kFloat);
    d_keys = at::segment_reduce(by_token, "sum", {}, {}, plan.varlen.row_begin, 0, /*unsafe=*/true);
  }
  return d_keys;
}

}  // namespace af
