// The kernels by their names for cuModuleGetFunction; launch.cc launches them. The ATen expressions that say the same
// stand in elementwise.cc, head.cc, adamw.cc and paged.cc. Suffixes: fp32 and bf16 are the type of rows, of the head's
// gradient.
#include "head.h"
#include "optimizer.h"
#include "paged.h"
#include "rows.h"

AF_KERNEL(kHeadThreads)
af_head_forward(const float* logits, const long long* target, float scale, int V, int whole, float* logprob,
                float* entropy, float* lse) {
  head_forward(logits, target, scale, V, whole, logprob, entropy, lse);
}
AF_KERNEL(kRowThreads) af_sum_parts(float* sum, const float* part, int parts, int n) { sum_parts(sum, part, parts, n); }
AF_KERNEL(kStepThreads)
af_adamw(float* p, float* g, float* m, float* v, bf16* rounded, long long n, float beta1, float rest1, float beta2,
         float rest2, float eps, float decay, float step_size, float inverse_correction, float gradient_scale,
         int whole) {
  adamw(p, g, m, v, rounded, n, beta1, rest1, beta2, rest2, eps, decay, step_size, inverse_correction, gradient_scale,
        whole);
}

#define AF_OF_TYPE(X, suffix)                                                                                          \
  AF_KERNEL(kHeadThreads)                                                                                              \
  af_head_backward_##suffix(float* logits, const long long* target, const float* lse, const float* entropy,            \
                            const float* d_logprob, const float* d_entropy, float scale, int V, int whole) {           \
    head_backward<X>(logits, target, lse, entropy, d_logprob, d_entropy, scale, V, whole);                             \
  }                                                                                                                    \
  AF_KERNEL(kRowThreads) af_swiglu_##suffix(X* act, const X* gate_up, int F, int whole) {                              \
    swiglu(act, gate_up, F, whole);                                                                                    \
  }                                                                                                                    \
  AF_KERNEL(kRowThreads)                                                                                               \
  af_swiglu_backward_##suffix(X* d_gate_up, X* act, const X* gate_up, const X* d_act, int F, int whole) {              \
    swiglu_backward(d_gate_up, act, gate_up, d_act, F, whole);                                                         \
  }                                                                                                                    \
  AF_KERNEL(kRowThreads)                                                                                               \
  af_rope_##suffix(X* x, const float* cos, const float* sin, int stride, int heads, int half, float sign, int whole) { \
    rope(x, cos, sin, stride, heads, half, sign, whole);                                                               \
  }                                                                                                                    \
  AF_KERNEL(kRowThreads)                                                                                               \
  af_rms_norm_##suffix(X* y, long long y_stride, float* rstd, const X* x, long long x_stride, const X* w, int n,       \
                       float eps, int again, int whole) {                                                              \
    rms_norm(y, y_stride, rstd, x, x_stride, w, n, eps, again, whole);                                                 \
  }                                                                                                                    \
  AF_KERNEL(kRowThreads)                                                                                               \
  af_rms_norm_backward_##suffix(X* dx, long long dx_stride, float* part, const X* dy, long long dy_stride, const X* x, \
                                long long x_stride, const X* w, const float* rstd, int rows, int heads, int n,         \
                                int whole) {                                                                           \
    rms_norm_backward(dx, dx_stride, part, dy, dy_stride, x, x_stride, w, rstd, rows, heads, n, whole);                \
  }                                                                                                                    \
  AF_KERNEL(kPagedThreads)                                                                                             \
  af_attend_paged_##suffix(X* out, long long out_stride, float* part, const X* q, long long q_stride, const X* kv,     \
                           const int* row, const int* sequence, const int* count, const int* table, int blocks,        \
                           int block_size, int K, int G, int E, float scale, int whole) {                              \
    attend_paged(out, out_stride, part, q, q_stride, kv, row, sequence, count, table, blocks, block_size, K, G, E,     \
                 scale, whole);                                                                                        \
  }                                                                                                                    \
  AF_KERNEL(kPagedThreads)                                                                                             \
  af_join_spans_##suffix(X* out, long long out_stride, const float* part, const int* row, const int* count, int spans, \
                         int H, int E) {                                                                               \
    join_spans(out, out_stride, part, row, count, spans, H, E);                                                        \
  }

AF_OF_TYPE(float, fp32)
AF_OF_TYPE(bf16, bf16)
