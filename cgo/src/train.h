// The training forward and backward, written by hand over the whole model: what its files share.
//
// Every operation has a CPU version on kernels.h and a generic one on ATen, which other devices use; af_model.path says
// which, and the tests hold one against the other on the CPU. Nothing depends on timing or on the
// number of threads but libtorch's own matrix products: the same input gives the same bits.
#pragma once
#include <mutex>

#include "dealt.h"
#include "kernels.h"
#include "share.h"

namespace af {

struct Run {  // consecutive packed tokens
  int64_t start, length;
};

// Adds a run behind others; one that begins where the last ends is joined to it.
inline void add_run(std::vector<Run>& runs, const Run& r) {
  if (!runs.empty() && runs.back().start + runs.back().length == r.start) {
    runs.back().length += r.length;
  } else {
    runs.push_back(r);
  }
}

struct Segment {
  int64_t start, length;
  std::vector<Run> ancestors;  // from the root down, adjacent runs joined
  int64_t before = 0;          // tokens in ancestors
  int64_t row = 0;  // of its first token among those that this process computes: start, where it computes all
};

// The segments as the sequences of one attention call of variable lengths: see varlen.cc.
struct Varlen {
  int64_t max_q = 0, max_k = 0;  // most queries and keys of a segment
  at::Tensor cu_q, cu_k;         // [S + 1] int32: the first query and the first key of each segment, and the ends
  at::Tensor key_token_A;        // the token of each key; undefined where the keys are the tokens
  at::Tensor row_A, row_begin;   // the keys in the order of their tokens, and [keys() + 1] where those of a token begin
};

// Attention over keys that lie elsewhere than in the batch: see decode_device.cc.
class Cached {
 public:
  virtual ~Cached() = default;
  // out [T, HE] of layer i from the rotated qkv [T, (H + 2K)E], whose keys and values it keeps.
  virtual void attend(int64_t i, const at::Tensor& qkv, const at::Tensor& out) const = 0;
};

// A checked batch, on the model's device.
struct Plan {
  int64_t T = 0, O = 0, N = 0;  // tokens, those whose residual stream this process computes, rows
  std::vector<Segment> segments;
  std::vector<int64_t> tokens, row_token, row_target;  // [O], [N] places among the O, [N]
  at::Tensor tokens_O, row_token_N, row_target_N;      // the same, int64
  at::Tensor cos_T, sin_T;                             // [T, E/2] float32
  double logit_scale = 1;                              // 1 / temperature
  Varlen varlen;                                       // filled where use_varlen
  // Where several ranks share the batch's tokens (context parallelism) T of them are this one's, the segments are the
  // pieces that it owns, and starts and ancestors count the tokens of the batch. null: this process computes all.
  std::shared_ptr<const Dealt> context;
  int64_t keys() const;  // tokens of the batch
  // Where several ranks share the layers (see share.h) of the T tokens O are this one's. null: T.
  std::shared_ptr<const Dealt> tensor;
  Share share;
  // Takes the place of attention over the segments in a forward that nothing goes back through; null: nothing does.
  const Cached* cached = nullptr;
};

// The ranks that compute a batch together; null: this process alone.
struct Neighbours {
  std::shared_ptr<Group> context, tensor;  // share its tokens, share its layers
};
void check_sizes(const af_batch& b);  // InputError without a token or a row
Plan make_plan(const af_model& m, const af_batch& b, const Neighbours& ranks = {});

// Fills cos_T and sin_T for these positions of the T tokens.
void rotate(const af_model& m, Plan& p, const std::vector<int64_t>& positions);

// The CPU tensor on the model's device, a copy; from pinned memory to a CUDA device, so that the CPU need not wait.
at::Tensor to_device(const af_model& m, const at::Tensor& x);
at::Tensor to_device(const af_model& m, const std::vector<int64_t>& values);  // [values] int64
at::Tensor to_device(const af_model& m, const std::vector<int32_t>& values);  // [values] int32

// Whether operations run on kernels.h.
inline bool use_kernels(const af_model& m) { return m.path == Path::kKernels; }
// Whether the model computes in bfloat16 as the local engine does, so that a forward without adapters, whose layers no
// other rank shares, has the engine's bits; attention's backward is then attend.h's too. In bfloat16 it must: now and
// then a rounding makes of a difference in the last bit of a sum one of a 256th, and thirty layers later the two are a
// third as far apart as either is from float32.
inline bool as_engine(const af_model& m) { return use_kernels(m) && m.dtype == at::kBFloat16; }
// Whether attention is one call of variable lengths.
inline bool use_varlen(const af_model& m) { return m.path == Path::kVarlen || m.path == Path::kFlash; }

// Calls f with a value of the type of t's elements, float or bfloat16.
template <class F>
void by_type(const at::Tensor& t, const F& f) {
  if (t.scalar_type() == at::kBFloat16) return f(bfloat16());
  TORCH_INTERNAL_ASSERT(t.scalar_type() == at::kFloat);
  f(float());
}
template <class X>
X* elements(const at::Tensor& t) {
  return static_cast<X*>(t.mutable_data_ptr());
}

// ---- product.cc: matrix products of float32 or bfloat16, sums in float32 ----
at::Tensor product(const at::Tensor& a, const at::Tensor& b);        // of b's type
at::Tensor product_float(const at::Tensor& a, const at::Tensor& b);  // float32; also of more dimensions
at::Tensor product_wide(const at::Tensor& a, const at::Tensor& b);   // float32, rounded on its way where that is faster
void product_out(at::Tensor y, const at::Tensor& a, const at::Tensor& b);
// y = x w^T + bias, or y += with add, x and w bfloat16 on the CPU, y bfloat16 or float32: the engine's product
// (linear.h) and so its bits
void linear_as_engine(const af_model& m, const at::Tensor& y, const at::Tensor& x, const at::Tensor& w,
                      const at::Tensor& bias, bool add);
// y [N, V] float32 = x w^T: the engine's logits where the model computes as the engine does
void logits_out(const af_model& m, const at::Tensor& y, const at::Tensor& x, const at::Tensor& w);
// y = a b, or y += a b with add, as libtorch does it: all of one type
void plain_product(at::Tensor y, const at::Tensor& a, const at::Tensor& b, bool add);
// y += scale a b; y may be float32 where a and b are bfloat16
void product_add(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, double scale = 1);

// ---- elementwise.cc; x, y, dx, dy are [rows, heads, n], the last dimension contiguous ----
// y = norm(x), rstd [rows, heads].
void rms_norm(const af_model& m, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y, const at::Tensor& rstd);
// y = norm(x) again, with the rstd of before.
void rms_norm_again(const af_model& m, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y,
                    const at::Tensor& rstd);
// dx +=, dw += where dw is defined
void rms_norm_backward(const af_model& m, const at::Tensor& dx, const at::Tensor& dw, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& w, const at::Tensor& rstd);
// Rotates the first heads heads of qkv [T, *] in place; direction -1 is the transpose of +1.
void rope(const af_model& m, const Plan& plan, const at::Tensor& qkv, int64_t heads, int direction);
// act [T, F] = silu(gate) * up
void swiglu(const af_model& m, const at::Tensor& act, const at::Tensor& gate_up);
void swiglu_backward(const af_model& m, const at::Tensor& d_gate_up, const at::Tensor& act, const at::Tensor& gate_up,
                     const at::Tensor& d_act);
// y [T, *] float32 rows index[i] += x [N, *], in the order of i.
void add_rows(const af_model& m, const at::Tensor& y, const std::vector<int64_t>& index, const at::Tensor& index_N,
              const at::Tensor& x);

// ---- adapter.cc; x [T, in], y [T, out] ----
// y += the adapters' share
void low_rank(const af_model& m, const LowRank& a, const at::Tensor& y, const at::Tensor& x);
// dx += the adapters' share; returns d u for low_rank_gradient
at::Tensor low_rank_backward(const af_model& m, const LowRank& a, const at::Tensor& dy, const at::Tensor& dx);
// g +=
void low_rank_gradient(const af_model& m, const LowRank& a, const LowRank& g, const at::Tensor& dy, const at::Tensor& x,
                       const at::Tensor& du);

// ---- attention.cc, for the heads of plan.share: qkv and d_qkv [T, (H + 2K)E], out and d_out [T, HE], lse [T, H] (log
// of the softmax's denominator) ----
void attention(const af_model& m, const Plan& plan, const at::Tensor& qkv, const at::Tensor& out,
               const at::Tensor& lse);
void attention_backward(const af_model& m, const Plan& plan, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& lse, const at::Tensor& d_out, const at::Tensor& d_qkv);

// ---- varlen.cc: the same for models that use_varlen; q and d_q [T, HE], keys [plan.keys(), 2KE] ----
Varlen make_varlen(const af_model& m, const Plan& plan);
void attention_varlen(const af_model& m, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                      const at::Tensor& out, const at::Tensor& lse);
// Held while libtorch's deterministic algorithms are asked for, under which its products on CUDA throw: by the call of
// backward_varlen that asks, and by whoever computes on a thread of its own beside a backward.
std::mutex& deterministic_mutex();
// Returns the gradient of keys.
at::Tensor backward_varlen(const af_model& m, const Plan& plan, const at::Tensor& q, const at::Tensor& keys,
                           const at::Tensor& out, const at::Tensor& lse, const at::Tensor& d_out,
                           const at::Tensor& d_q);

// ---- forward.cc ----
// The logits [N, V] float32 of the plan's rows, before the temperature, with the adapter where there is one; undefined
// without rows.
at::Tensor plan_logits(af_model& m, const Plan& plan);

// ---- head.cc ----
at::Tensor logits(const at::Tensor& hidden_ND, const at::Tensor& weight_VD);  // [N, V] float32
struct HeadResult {
  at::Tensor logprob_N, entropy_N, lse_N;
};
HeadResult head(const af_model& m, const at::Tensor& weight_VD, const Plan& plan, const at::Tensor& hidden_ND);
// Returns d hidden [N, D] float32; adds to m.grad.head_VD where there is one. d_logprob, d_entropy [N], either may be
// undefined.
at::Tensor head_backward(af_model& m, const at::Tensor& weight_VD, const Plan& plan, const at::Tensor& hidden_ND,
                         const HeadResult& forward, const at::Tensor& d_logprob, const at::Tensor& d_entropy);
// value_N = hidden w^T + b of the value head.
at::Tensor value_head(const af_model& m, const at::Tensor& hidden_ND);
// d_hidden [N, D] += d_value w; adds to the value head's gradient. A row whose d_value is 0 touches neither, NaN or
// not.
void value_head_backward(af_model& m, const at::Tensor& hidden_ND, const at::Tensor& d_value,
                         const at::Tensor& d_hidden);

}  // namespace af
