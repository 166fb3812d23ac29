// Sampling: temperature, then min-p, top-k and top-p in this order (vLLM's), then the inverse of the cumulative
// distribution, in the order of token ids, at a random number that (seed, counter) determines.
#include "sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "internal.h"
#include "kernels.h"

namespace af {
namespace {

constexpr float kNone = -INFINITY;  // the z of a token that was cut off

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

// The index of the greatest, the first of equals.
int64_t argmax(const float* z, int64_t V) {
  constexpr int64_t kPiece = 1024;
  int64_t from = 0;  // of the first piece that holds the greatest
  float top = kNone;
  bool finite = true;
  for (int64_t start = 0; start < V; start += kPiece) {
    const float here = kernel::max_of(z + start, std::min(kPiece, V - start), &finite);
    if (here > top) top = here, from = start;
  }
  if (!finite || top == kNone) throw NonFiniteError("logits hold NaN or infinity: the weights are damaged");
  return std::find(z + from, z + V, top) - z;
}

// All below: z [V] are logits over temperature, less their maximum: the greatest is 0.

// Keeps the k greatest (ties: smaller ids first).
void keep_top_k(float* z, int64_t V, int64_t k) {
  if (k >= V) return;
  std::vector<float> sorted(z, z + V);
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<float>());
  const float least = sorted[k - 1];
  int64_t equal = k - std::count_if(sorted.begin(), sorted.begin() + (k - 1), [&](float v) { return v > least; });
  for (int64_t i = 0; i < V; i++) {
    if (z[i] < least || (z[i] == least && equal-- <= 0)) z[i] = kNone;
  }
}

// Keeps the fewest tokens, most likely first (ties: smaller ids first), whose probability reaches p.
void keep_top_p(float* z, int64_t V, double p) {
  // By mass in bins of 1/8 the bin is found in which p is reached; only that one is sorted.
  constexpr int64_t kBins = 1024;
  auto bin = [](float v) { return std::min<int64_t>(kBins - 1, static_cast<int64_t>(v * -8.0f)); };
  std::vector<double> mass(kBins, 0.0);
  double total = 0;
  for (int64_t i = 0; i < V; i++) {
    if (z[i] > -88) mass[bin(z[i])] += std::exp(static_cast<double>(z[i]));
  }
  for (double m : mass) total += m;
  int64_t last = 0;
  double sum = 0;
  while (last + 1 < kBins && sum + mass[last] < p * total) sum += mass[last++];
  std::vector<std::pair<float, int32_t>> edge;  // of the last bin: -z, token
  for (int64_t i = 0; i < V; i++) {
    if (z[i] == kNone) continue;
    const int64_t b = z[i] > -120 ? bin(z[i]) : kBins - 1;
    if (b == last) edge.push_back({-z[i], static_cast<int32_t>(i)});
    if (b > last) z[i] = kNone;
  }
  std::sort(edge.begin(), edge.end());
  size_t kept = 0;
  while (kept < edge.size() && sum < p * total) sum += std::exp(-static_cast<double>(edge[kept++].first));
  for (size_t i = kept; i < edge.size(); i++) z[edge[i].second] = kNone;
}

constexpr int64_t kRun = 512;  // tokens whose probabilities are summed at a time

// e [n] = exp(z), 0 where z is so low that exp would be less than a float's precision beside the greatest, 1.
double run_of(float* e, const float* z, int64_t n) { return kernel::exp_above(e, z, n, -80); }

// The token at u in [0, 1) of the cumulative distribution, and the log of sum(exp(z)).
std::pair<int64_t, double> draw(const float* z, int64_t V, double u) {
  float e[kRun];
  std::vector<double> mass;
  double total = 0;
  for (int64_t start = 0; start < V; start += kRun) {
    mass.push_back(run_of(e, z + start, std::min(kRun, V - start)));
    total += mass.back();
  }
  const double wanted = u * total;
  double sum = 0;
  int64_t last = 0;
  for (int64_t start = 0; start < V; start += kRun) {
    const double here = mass[start / kRun];
    if (here == 0 || sum + here <= wanted) {
      sum += here;
      continue;
    }
    const int64_t n = std::min(kRun, V - start);
    run_of(e, z + start, n);
    for (int64_t i = 0; i < n; i++) {
      if (e[i] == 0) continue;
      sum += e[i];
      last = start + i;
      if (sum > wanted) return {last, std::log(total)};
    }
  }
  return {z[last] == kNone ? argmax(z, V) : last, std::log(total)};  // rounding left u * total just above the last sum
}

}  // namespace

Sampled score(const float* z, int64_t V, int64_t token) {
  argmax(z, V);  // throws
  kernel::HeadState state;
  kernel::head_update(state, z, V, 1);
  return {static_cast<int32_t>(token), static_cast<float>(std::min(0.0, z[token] - state.max - std::log(state.sum)))};
}

Sampled sample(float* z, int64_t V, const SamplingParameters& p) {
  const int64_t best = argmax(z, V);
  if (p.temperature == 0 && !p.edited) return score(z, V, best);
  const float top = z[best];
  if (p.temperature == 0) {
    for (int64_t i = 0; i < V; i++) z[i] -= top;
    return {static_cast<int32_t>(best), static_cast<float>(-draw(z, V, 0).second)};
  }
  // A float that is neither infinite nor 0: 0 * -infinity, of a token that is excluded, is NaN.
  const float scale = static_cast<float>(std::clamp(1 / p.temperature, 1e-30, 1e30));
  for (int64_t i = 0; i < V; i++) z[i] = (z[i] - top) * scale;
  if (p.min_p > 0) {
    const float least = static_cast<float>(std::log(p.min_p));
    for (int64_t i = 0; i < V; i++) z[i] = z[i] < least ? kNone : z[i];
  }
  if (p.top_k > 0) keep_top_k(z, V, p.top_k);
  if (p.top_p < 1) keep_top_p(z, V, p.top_p);
  const auto [token, log_total] = draw(z, V, uniform(p.seed, p.counter));
  return {static_cast<int32_t>(token), static_cast<float>(std::min(0.0, z[token] - log_total))};
}

double log_sum(const float* z, int64_t V) {
  kernel::HeadState state;
  kernel::head_update(state, z, V, 1);
  return state.max + std::log(state.sum);
}

void top(const float* z, int64_t V, int64_t k, double log_total, int32_t* ids, float* logprobs) {
  std::vector<int32_t> best(static_cast<size_t>(V));
  std::iota(best.begin(), best.end(), 0);
  std::partial_sort(best.begin(), best.begin() + k, best.end(),
                    [z](int32_t a, int32_t b) { return z[a] > z[b] || (z[a] == z[b] && a < b); });
  for (int64_t i = 0; i < k; i++) {
    ids[i] = best[static_cast<size_t>(i)];
    logprobs[i] = static_cast<float>(std::min(0.0, z[ids[i]] - log_total));
  }
}

}  // namespace af
