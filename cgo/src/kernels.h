// Vector kernels of the CPU path: one row or one range each, single-threaded, no libtorch. Callers split the work.
#pragma once
#include <cstdint>
#include <cstring>

namespace af {

// The upper half of a float32.
using bfloat16 = uint16_t;

inline float widened(float x) { return x; }
inline float widened(bfloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
inline void round_to(float& to, float x) { to = x; }
inline void round_to(bfloat16& to, float x) {  // the nearest, ties to even
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  to = x != x ? 0x7fc0 : static_cast<bfloat16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace af

namespace af::kernel {

// X is float or bfloat16; the arithmetic is float's, and what is stored is rounded once.

// y[i] = x[i] * rstd * w[i]; returns rstd = 1 / sqrt(mean(x^2) + eps).
template <class X>
float rms_norm(X* y, const X* x, const float* w, int64_t n, float eps);
// dx += the gradient through the norm; dw += dy * x * rstd.
template <class X>
void rms_norm_backward(X* dx, float* dw, const X* dy, const X* x, const float* w, float rstd, int64_t n);
// y = x * rstd * w with a known rstd.
template <class X>
void scale_norm(X* y, const X* x, const float* w, float rstd, int64_t n);

// Rotates heads of x [heads, E] in place by (cos, sin) [E/2], Hugging Face's rotate_half order; direction -1 undoes +1.
template <class X>
void rope(X* x, const float* cos, const float* sin, int64_t heads, int64_t E, float direction);

// cos and sin [half] of position * inv_freq [half] in float32, times factor: as transformers.
void rotation(float* cos, float* sin, float position, const float* inv_freq, int64_t half, float factor);

// act [F] = silu(gate) * up, where gate_up = [gate F, up F].
template <class X>
void swiglu(X* act, const X* gate_up, int64_t F);
void half_swiglu(float* act, const float* gate_up, int64_t F);  // rounded to bfloat16
// Also recomputes act; d_gate_up [2F] from d_act [F].
template <class X>
void swiglu_backward(X* d_gate_up, X* act, const X* gate_up, const X* d_act, int64_t F);

// s[0, n) = exp(s - max); returns their sum, *max is the row's maximum.
float exp_minus_max(float* s, int64_t n, float* max);
// p[0, n) = exp(scale * s - max), rounded to bfloat16, where *max is the greatest of scale * s; returns the sum of p.
template <class X>
float half_exp_minus_max(X* p, const float* s, int64_t n, float scale, float* max);
// s[0, n) = exp(s - lse).
void exp_minus(float* s, int64_t n, float lse);
// The greatest of x [n]; -infinity for none. *finite becomes false if there is a NaN or +infinity.
float max_of(const float* x, int64_t n, bool* finite);
// e [n] = exp(z), 0 where z < least. Returns the sum.
double exp_above(float* e, const float* z, int64_t n, float least);
// ds = p * (dp - delta), written over dp.
void softmax_backward(float* dp, const float* p, int64_t n, float delta);

// Running log-sum-exp and entropy of a row of logits that comes in pieces.
struct HeadState {
  double max = 0, sum = 0, dot = 0;  // of z = scale * logit: max, sum of exp(z - max), sum of exp(z - max) * (z - max)
};
template <class X>
void head_update(HeadState& state, const X* logits, int64_t n, float scale);
// logits [n] become d loss / d logits, but for the target's own term:
// z = scale * logit, -scale * exp(z - lse) * (d_logprob + d_entropy * (z - lse + entropy)).
template <class X>
void head_backward(X* logits, int64_t n, float scale, float lse, float entropy, float d_logprob, float d_entropy);

double dot(const float* a, const float* b, int64_t n);
void add(float* y, const float* x, int64_t n);                // y += x
void add(float* y, const bfloat16* x, float a, int64_t n);    // y += a * x
void scale_to(float* y, const float* x, float a, int64_t n);  // y = a * x
void widen(float* y, const bfloat16* x, int64_t n);           // y = x
void to_half(float* x, int64_t n);                            // the nearest numbers of bfloat16
template <class X>
void to_half(X* y, const float* x, int64_t n);  // the same into y
double sum_squares(const float* x, int64_t n);

struct AdamW {
  float beta1, rest1, beta2, rest2;  // rest = 1 - beta, rounded once
  float eps, decay;                  // decay = 1 - lr * weight_decay
  float step_size;                   // lr / (1 - beta1^t)
  float sqrt_correction;             // sqrt(1 - beta2^t)
  float gradient_scale;
};
// One step over n elements; gradients are cleared.
void adamw(float* p, float* g, float* m, float* v, int64_t n, const AdamW& a);

}  // namespace af::kernel
