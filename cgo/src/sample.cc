// Sampling: temperature, then min-p, top-k and top-p in this order (vLLM's), then the inverse of the cumulative
// distribution at a random number that (seed, counter) determines.
#include "sample.h"

#include <algorithm>
#include <cmath>

#include "internal.h"
#include "kernels.h"

namespace af {
namespace {

// SplitMix64's finalizer (Steele, Lea, Flood 2014) over seed and counter: uniform in [0, 1) with 53 bits.
double uniform(uint64_t seed, uint64_t counter) {
  auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  };
  const uint64_t z = mix(mix(seed + 0x9e3779b97f4a7c15ULL) + (counter + 1) * 0x9e3779b97f4a7c15ULL);
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

int64_t argmax(const float* z, int64_t V) {  // the first of equals; NaN is never the greatest
  int64_t best = 0;
  for (int64_t i = 1; i < V; i++) {
    if (z[i] > z[best] || std::isnan(z[best])) best = i;
  }
  return best;
}

struct Candidate {
  float z;
  int32_t token;
};

// The tokens that min-p, top-k and top-p leave, most likely first (ties: smaller id first).
std::vector<Candidate> truncate(const float* z, int64_t V, float max, const SamplingParameters& p) {
  const double lowest = p.min_p > 0 ? max + std::log(p.min_p) : -INFINITY;
  std::vector<Candidate> kept;
  for (int64_t i = 0; i < V; i++) {
    if (z[i] >= lowest && z[i] > -INFINITY) kept.push_back({z[i], static_cast<int32_t>(i)});
  }
  auto before = [](const Candidate& a, const Candidate& b) { return a.z != b.z ? a.z > b.z : a.token < b.token; };
  if (p.top_k > 0 && p.top_k < static_cast<int64_t>(kept.size())) {
    std::nth_element(kept.begin(), kept.begin() + p.top_k, kept.end(), before);
    kept.resize(p.top_k);
  }
  std::sort(kept.begin(), kept.end(), before);
  if (p.top_p < 1) {
    double total = 0, sum = 0;
    for (const Candidate& c : kept) total += std::exp(static_cast<double>(c.z) - max);
    size_t n = 0;
    while (n < kept.size() && sum < p.top_p * total) sum += std::exp(static_cast<double>(kept[n++].z) - max);
    kept.resize(std::max<size_t>(1, n));
  }
  return kept;
}

}  // namespace

Sampled sample(float* z, int64_t V, const SamplingParameters& p) {
  kernel::HeadState state;
  const bool greedy = p.temperature == 0;
  const float scale = greedy ? 1.0f : static_cast<float>(1 / p.temperature);
  if (scale != 1) kernel::scale_to(z, z, scale, V);
  kernel::head_update(state, z, V, 1);
  if (!std::isfinite(state.max) || !std::isfinite(state.sum)) throw NonFiniteError("logits hold NaN or infinity; the weights are damaged");
  const float max = static_cast<float>(state.max);
  const double log_total = std::log(state.sum);
  auto result = [&](int64_t token, double log_normalizer) {
    return Sampled{static_cast<int32_t>(token), static_cast<float>(std::min(0.0, static_cast<double>(z[token]) - max - log_normalizer))};
  };
  if (greedy) return result(argmax(z, V), log_total);

  const double u = uniform(p.seed, p.counter);
  if (p.top_k > 0 || p.top_p < 1 || p.min_p > 0) {
    const std::vector<Candidate> kept = truncate(z, V, max, p);
    double total = 0, sum = 0;
    for (const Candidate& c : kept) total += std::exp(static_cast<double>(c.z) - max);
    for (const Candidate& c : kept) {
      sum += std::exp(static_cast<double>(c.z) - max);
      if (sum > u * total) return result(c.token, std::log(total));
    }
    return result(kept.back().token, std::log(total));  // rounding left u * total just above the last sum
  }
  // In runs: whole ones are passed over by their sums, the one that holds u is walked through.
  constexpr int64_t kRun = 512;
  const double wanted = u * state.sum;
  double sum = 0;
  int64_t last = -1;
  for (int64_t start = 0; start < V; start += kRun) {
    const int64_t n = std::min(kRun, V - start);
    float e[kRun];
    std::copy(z + start, z + start + n, e);
    kernel::exp_minus(e, n, max);
    double run = 0;
    for (int64_t i = 0; i < n; i++) run += e[i];
    if (sum + run > wanted) {
      for (int64_t i = 0; i < n; i++) {
        if (z[start + i] == -INFINITY) continue;
        sum += e[i];
        last = start + i;
        if (sum > wanted) return result(last, log_total);
      }
    } else {
      sum += run;
    }
  }
  return result(last >= 0 ? last : argmax(z, V), log_total);  // rounding left wanted just above the whole sum
}

}  // namespace af
