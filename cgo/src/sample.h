// Sampling one token from a row of logits.
#pragma once
#include <cstdint>

namespace af {

struct SamplingParameters {
  double temperature;  // 0: greedy
  double top_p;        // 1: off
  int64_t top_k;       // 0: off
  double min_p;        // 0: off
  uint64_t seed, counter;
  bool edited;  // logits may be -infinity
};

struct Sampled {
  int32_t token;
  float logprob;  // of the distribution that was sampled; greedy: of temperature 1
};

// logits [V] are overwritten. Throws NonFiniteError when they hold NaN or +infinity, or nothing but -infinity.
Sampled sample(float* logits, int64_t V, const SamplingParameters& p);
// The given token with its logprob at temperature 1. Throws like sample.
Sampled score(const float* logits, int64_t V, int64_t token);

// The logarithm of the sum of exp of a row of finite logits.
double log_sum(const float* logits, int64_t V);
// The k tokens with the greatest logits, greatest first, lower id before higher, with logit - log_total. k is at most
// V.
void top(const float* logits, int64_t V, int64_t k, double log_total, int32_t* ids, float* logprobs);

}  // namespace af
