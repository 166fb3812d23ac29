// Vector kernels of the CPU path. Eight numbers at a time; a version for AVX2 with FMA is picked at run time on x86.
#include "kernels.h"

#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#define INLINE inline __attribute__((always_inline))

namespace af::kernel {
namespace {

typedef float F8 __attribute__((vector_size(32)));
typedef int32_t I8 __attribute__((vector_size(32)));
typedef float F8u __attribute__((vector_size(32), aligned(4), may_alias));

typedef uint32_t U8 __attribute__((vector_size(32)));
typedef uint16_t H8 __attribute__((vector_size(16)));
typedef uint16_t H8u __attribute__((vector_size(16), aligned(2), may_alias));

INLINE F8 load(const float* p) { return *reinterpret_cast<const F8u*>(p); }
INLINE void store(float* p, F8 v) { *reinterpret_cast<F8u*>(p) = v; }
// The nearest numbers of bfloat16, ties to even; NaN stays NaN. These casts of vectors, and those below, keep the bits.
INLINE F8 half8(F8 v) {
  const U8 bits = (U8)v, rounded = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  return (F8)(v == v ? rounded : U8{} + 0x7fc00000);
}
INLINE F8 load(const bfloat16* p) { return (F8)(__builtin_convertvector(*reinterpret_cast<const H8u*>(p), U8) << 16); }
INLINE void store(bfloat16* p, F8 v) { *reinterpret_cast<H8u*>(p) = __builtin_convertvector((U8)half8(v) >> 16, H8); }
// The same of numbers of bfloat16.
INLINE void store_half(float* p, F8 v) { store(p, v); }
INLINE void store_half(bfloat16* p, F8 v) { *reinterpret_cast<H8u*>(p) = __builtin_convertvector((U8)v >> 16, H8); }
template <class X>
INLINE F8 load_some(const X* p, int64_t n, float fill) {
  float b[8] = {fill, fill, fill, fill, fill, fill, fill, fill};
  for (int64_t i = 0; i < n; i++) b[i] = widened(p[i]);
  return load(b);
}
template <class X>
INLINE void store_some(X* p, F8 v, int64_t n) {
  X b[8];
  store(b, v);
  std::memcpy(p, b, static_cast<size_t>(n) * sizeof(X));
}
INLINE F8 all(float x) { return F8{x, x, x, x, x, x, x, x}; }
INLINE F8 max8(F8 a, F8 b) { return a > b ? a : b; }
INLINE float greatest(F8 v) {
  float top = v[0];
  for (int k = 1; k < 8; k++) top = v[k] > top ? v[k] : top;
  return top;
}
INLINE float sum(F8 v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
INLINE double sum_wide(F8 v) {
  double s = 0;
  for (int i = 0; i < 8; i++) s += v[i];
  return s;
}

// exp of x <= 88.7 to about 2 units in the last place; NaN stays NaN, below -87.3 the result is the smallest
// normal number. It is what is returned, 0.7 to 1.42, times 2^n.
INLINE F8 exp_parts(F8 x, I8& n) {
  const F8 low = all(-87.33654f);
  x = x < low ? low : x;              // in this order a NaN passes
  const F8 magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
  const F8 shifted = x * 1.44269504f + magic;
  const F8 whole = shifted - magic;
  F8 r = x - whole * 0.693359375f;
  r = r + whole * 2.12194440e-4f;
  F8 p = all(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  n = (I8)shifted - 0x4B400000;  // this cast and those below keep the bits
  return p;
}
INLINE F8 exp8(F8 x) {
  const F8 high = all(88.72283f);
  I8 n;
  const F8 p = exp_parts(x > high ? high : x, n);
  const I8 half = n >> 1;  // 2^n in two factors, because n may be 128
  const I8 a = (half + 127) << 23, b = (n - half + 127) << 23;
  return p * (F8)a * (F8)b;
}
// The same for x <= 0.
INLINE F8 exp8_below(F8 x) {
  I8 n;
  const F8 p = exp_parts(x, n);
  return p * (F8)((n + 127) << 23);
}
INLINE F8 sigmoid8(F8 x) { return 1.0f / (1.0f + exp8(-x)); }

template <class X>
INLINE float greatest_of(const X* x, int64_t n) {  // -infinity for none
  const float lowest = -std::numeric_limits<float>::infinity();
  F8 m = all(lowest), a = m, b = m, c = m;  // of which none waits for another
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    m = max8(load(x + i), m), a = max8(load(x + i + 8), a);
    b = max8(load(x + i + 16), b), c = max8(load(x + i + 24), c);
  }
  m = max8(max8(m, a), max8(b, c));
  for (; i + 8 <= n; i += 8) m = max8(load(x + i), m);
  if (i < n) m = max8(load_some(x + i, n - i, lowest), m);
  return greatest(m);
}

template <class X>
INLINE float sum_squares_of(const X* x, int64_t n) {
  F8 a = all(0), b = all(0), c = all(0), d = all(0);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const F8 p = load(x + i), q = load(x + i + 8), r = load(x + i + 16), s = load(x + i + 24);
    a += p * p, b += q * q, c += r * r, d += s * s;
  }
  for (; i < n; i += 8) {
    const F8 p = n - i >= 8 ? load(x + i) : load_some(x + i, n - i, 0);
    a += p * p;
  }
  return sum((a + b) + (c + d));
}

template <class X>
INLINE void scale_norm_of(X* y, const X* x, const float* w, float rstd, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(y + i, load(x + i) * rstd * load(w + i));
  if (i < n) store_some(y + i, load_some(x + i, n - i, 0) * rstd * load_some(w + i, n - i, 0), n - i);
}

}  // namespace

template <class X>
CLONES void scale_norm(X* y, const X* x, const float* w, float rstd, int64_t n) {
  scale_norm_of(y, x, w, rstd, n);
}

template <class X>
CLONES float rms_norm(X* y, const X* x, const float* w, int64_t n, float eps) {
  const float rstd = 1.0f / std::sqrt(sum_squares_of(x, n) / static_cast<float>(n) + eps);
  scale_norm_of(y, x, w, rstd, n);
  return rstd;
}

template <class X>
CLONES void rms_norm_backward(X* dx, float* dw, const X* dy, const X* x, const float* w, float rstd, int64_t n) {
  F8 acc = all(0);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const F8 g = load(dy + i), xi = load(x + i);
    acc += g * load(w + i) * xi;
    store(dw + i, load(dw + i) + g * xi * rstd);
  }
  if (i < n) {
    const F8 g = load_some(dy + i, n - i, 0), xi = load_some(x + i, n - i, 0);
    acc += g * load_some(w + i, n - i, 0) * xi;
    store_some(dw + i, load_some(dw + i, n - i, 0) + g * xi * rstd, n - i);
  }
  // d x = rstd * (dy w - x rstd^2 mean(dy w x))
  const float c = sum(acc) / static_cast<float>(n) * rstd * rstd;
  for (i = 0; i + 8 <= n; i += 8) {
    store(dx + i, load(dx + i) + rstd * (load(dy + i) * load(w + i) - load(x + i) * c));
  }
  if (i < n) {
    const int64_t m = n - i;
    store_some(dx + i,
               load_some(dx + i, m, 0) +
                   rstd * (load_some(dy + i, m, 0) * load_some(w + i, m, 0) - load_some(x + i, m, 0) * c),
               m);
  }
}

template <class X>
CLONES void rope(X* x, const float* cos, const float* sin, int64_t heads, int64_t E, float direction) {
  const int64_t half = E / 2;
  for (int64_t h = 0; h < heads; h++) {
    X *a = x + h * E, *b = a + half;
    int64_t i = 0;
    for (; i + 8 <= half; i += 8) {
      const F8 c = load(cos + i), s = load(sin + i) * direction, p = load(a + i), q = load(b + i);
      store(a + i, p * c - q * s);
      store(b + i, q * c + p * s);
    }
    if (i < half) {
      const int64_t n = half - i;
      const F8 c = load_some(cos + i, n, 0), s = load_some(sin + i, n, 0) * direction;
      const F8 p = load_some(a + i, n, 0), q = load_some(b + i, n, 0);
      store_some(a + i, p * c - q * s, n);
      store_some(b + i, q * c + p * s, n);
    }
  }
}

void rotation(float* cos, float* sin, float position, const float* inv_freq, int64_t half, float factor) {
  for (int64_t i = 0; i < half; i++) {
    const float angle = position * inv_freq[i];
    cos[i] = std::cos(angle) * factor;
    sin[i] = std::sin(angle) * factor;
  }
}

template <bool half, class X>
INLINE void swiglu_of(X* act, const X* gate_up, int64_t F) {
  const X* up = gate_up + F;
  for (int64_t i = 0; i < F; i += 8) {
    const int64_t n = F - i;
    const bool whole = n >= 8;
    const F8 g = whole ? load(gate_up + i) : load_some(gate_up + i, n, 0);
    const F8 u = whole ? load(up + i) : load_some(up + i, n, 0);
    const F8 a = g * sigmoid8(g) * u, result = half ? half8(a) : a;
    if (whole) {
      store(act + i, result);
    } else {
      store_some(act + i, result, n);
    }
  }
}
template <class X>
CLONES void swiglu(X* act, const X* gate_up, int64_t F) {
  swiglu_of<false>(act, gate_up, F);
}
CLONES void half_swiglu(float* act, const float* gate_up, int64_t F) { swiglu_of<true>(act, gate_up, F); }

template <class X>
CLONES void swiglu_backward(X* d_gate_up, X* act, const X* gate_up, const X* d_act, int64_t F) {
  const X* up = gate_up + F;
  for (int64_t i = 0; i < F; i += 8) {
    const int64_t n = F - i;
    const bool whole = n >= 8;
    const F8 g = whole ? load(gate_up + i) : load_some(gate_up + i, n, 0);
    const F8 u = whole ? load(up + i) : load_some(up + i, n, 0);
    const F8 d = whole ? load(d_act + i) : load_some(d_act + i, n, 0);
    const F8 s = sigmoid8(g), silu = g * s;
    const F8 dg = d * u * (s + silu * (1.0f - s)), du = d * silu, a = silu * u;
    if (whole) {
      store(d_gate_up + i, dg), store(d_gate_up + F + i, du), store(act + i, a);
    } else {
      store_some(d_gate_up + i, dg, n), store_some(d_gate_up + F + i, du, n), store_some(act + i, a, n);
    }
  }
}

template <class X>
CLONES void head_update(HeadState& state, const X* logits, int64_t n, float scale) {
  const float top = greatest_of(logits, n) * scale;
  if (state.sum == 0) {  // the first piece
    state.max = top;
  } else if (top > state.max) {
    const double shift = top - state.max, factor = std::exp(-shift);
    state.dot = factor * (state.dot - shift * state.sum);
    state.sum *= factor;
    state.max = top;
  }
  const float base = static_cast<float>(state.max);
  int64_t i = 0;
  while (i + 8 <= n) {
    F8 s = all(0),
       d = all(0);  // of few terms: in a long float sum beside the greatest the many small ones would be lost
    for (const int64_t end = std::min(n, i + 256); i + 8 <= end; i += 8) {
      const F8 z = load(logits + i) * scale - base, e = exp8(z);
      s += e;
      d += e * z;
    }
    state.sum += sum_wide(s);
    state.dot += sum_wide(d);
  }
  if (i < n) {
    const F8 z = load_some(logits + i, n - i, 0) * scale - base, e = exp8(z);
    for (int k = 0; k < n - i; k++) state.sum += e[k], state.dot += static_cast<double>(e[k]) * z[k];
  }
}

template <class X>
CLONES void head_backward(X* logits, int64_t n, float scale, float lse, float entropy, float d_logprob,
                          float d_entropy) {
  for (int64_t i = 0; i < n; i += 8) {
    const bool whole = n - i >= 8;
    const F8 logp = (whole ? load(logits + i) : load_some(logits + i, n - i, 0)) * scale - lse;
    const F8 g = -scale * exp8(logp) * (d_logprob + d_entropy * (logp + entropy));
    if (whole) {
      store(logits + i, g);
    } else {
      store_some(logits + i, g, n - i);
    }
  }
}

#define INSTANTIATE(X)                                                                           \
  template void scale_norm(X*, const X*, const float*, float, int64_t);                          \
  template float rms_norm(X*, const X*, const float*, int64_t, float);                           \
  template void rms_norm_backward(X*, float*, const X*, const X*, const float*, float, int64_t); \
  template void rope(X*, const float*, const float*, int64_t, int64_t, float);                   \
  template void swiglu(X*, const X*, int64_t);                                                   \
  template void swiglu_backward(X*, X*, const X*, const X*, int64_t);
INSTANTIATE(float)
INSTANTIATE(bfloat16)
#undef INSTANTIATE
// Logits are float32, whatever the model computes in.
template void head_update(HeadState&, const float*, int64_t, float);
template void head_backward(float*, int64_t, float, float, float, float, float);

CLONES void add(float* y, const bfloat16* x, float a, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(y + i, load(y + i) + load(x + i) * a);
  for (; i < n; i++) y[i] += widened(x[i]) * a;
}

CLONES float exp_minus_max(float* s, int64_t n, float* max) {
  const float top = greatest_of(s, n);
  *max = top;
  F8 acc = all(0);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const F8 e = exp8_below(load(s + i) - top);
    acc += e;
    store(s + i, e);
  }
  float total = sum(acc);
  if (i < n) {
    const F8 e = exp8_below(load_some(s + i, n - i, top) - top);
    for (int k = 0; k < n - i; k++) total += e[k];
    store_some(s + i, e, n - i);
  }
  return total;
}

template <class X>
CLONES float half_exp_minus_max(X* p, const float* s, int64_t n, float scale, float* max) {
  const float top = greatest_of(s, n) * scale;
  *max = top;
  F8 acc = all(0);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const F8 e = half8(exp8_below(load(s + i) * scale - top));
    acc += e;
    store_half(p + i, e);
  }
  float total = sum(acc);
  if (i < n) {
    const F8 e = half8(exp8_below(load_some(s + i, n - i, 0) * scale - top));
    for (int k = 0; k < n - i; k++) total += e[k];
    store_some(p + i, e, n - i);
  }
  return total;
}
template float half_exp_minus_max(float*, const float*, int64_t, float, float*);
template float half_exp_minus_max(bfloat16*, const float*, int64_t, float, float*);

CLONES void exp_minus(float* s, int64_t n, float lse) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(s + i, exp8(load(s + i) - lse));
  if (i < n) store_some(s + i, exp8(load_some(s + i, n - i, lse) - lse), n - i);
}

CLONES float max_of(const float* x, int64_t n, bool* finite) {
  const float lowest = -std::numeric_limits<float>::infinity();
  const F8 endless = all(-lowest);
  F8 m = all(lowest);
  I8 good = m < endless;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const F8 v = load(x + i);
    m = max8(v, m);
    good &= v < endless;  // false for NaN too
  }
  if (i < n) {
    const F8 v = load_some(x + i, n - i, lowest);
    m = max8(v, m);
    good &= v < endless;
  }
  for (int k = 0; k < 8; k++) *finite = *finite && good[k] != 0;
  return greatest(m);
}

CLONES double exp_above(float* e, const float* z, int64_t n, float least) {
  const F8 low = all(least);
  double total = 0;
  int64_t i = 0;
  while (i + 8 <= n) {
    F8 s = all(0);  // of few terms, as in head_update
    for (const int64_t end = n < i + 256 ? n : i + 256; i + 8 <= end; i += 8) {
      const F8 v = load(z + i), p = v < low ? all(0) : exp8(v);
      store(e + i, p);
      s += p;
    }
    total += sum_wide(s);
  }
  if (i < n) {
    const F8 v = load_some(z + i, n - i, -std::numeric_limits<float>::infinity()), p = v < low ? all(0) : exp8(v);
    store_some(e + i, p, n - i);
    total += sum_wide(p);
  }
  return total;
}

CLONES void softmax_backward(float* dp, const float* p, int64_t n, float delta) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(dp + i, load(p + i) * (load(dp + i) - delta));
  for (; i < n; i++) dp[i] = p[i] * (dp[i] - delta);
}

CLONES double dot(const float* a, const float* b, int64_t n) {
  F8 s = all(0), t = all(0);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    s += load(a + i) * load(b + i);
    t += load(a + i + 8) * load(b + i + 8);
  }
  double total = sum_wide(s + t);
  for (; i < n; i++) total += static_cast<double>(a[i]) * b[i];
  return total;
}

CLONES void add(float* y, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(y + i, load(y + i) + load(x + i));
  for (; i < n; i++) y[i] += x[i];
}

CLONES void scale_to(float* y, const float* x, float a, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(y + i, load(x + i) * a);
  for (; i < n; i++) y[i] = x[i] * a;
}

CLONES void widen(float* y, const bfloat16* x, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(y + i, load(x + i));
  for (; i < n; i++) y[i] = widened(x[i]);
}

template <class X>
CLONES void to_half(X* y, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(y + i, half8(load(x + i)));
  if (i < n) store_some(y + i, half8(load_some(x + i, n - i, 0)), n - i);
}
template void to_half(float*, const float*, int64_t);
template void to_half(bfloat16*, const float*, int64_t);
void to_half(float* x, int64_t n) { to_half(x, x, n); }

CLONES double sum_squares(const float* x, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; i += 4096) total += sum_squares_of(x + i, n - i < 4096 ? n - i : 4096);
  return total;
}

CLONES void adamw(float* p, float* g, float* m, float* v, int64_t n, const AdamW& a) {
  for (int64_t i = 0; i < n; i++) {
    const float gi = g[i] * a.gradient_scale;
    g[i] = 0;
    const float mi = m[i] * a.beta1 + gi * a.rest1, vi = v[i] * a.beta2 + gi * gi * a.rest2;
    m[i] = mi;
    v[i] = vi;
    p[i] = p[i] * a.decay - a.step_size * mi / (std::sqrt(vi) / a.sqrt_correction + a.eps);
  }
}

}  // namespace af::kernel
