// Initial values from a counter-based generator.
#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

#include "internal.h"

namespace af {
namespace {

// splitmix64: a counter in, 64 well-mixed bits out (Steele et al., OOPSLA 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t key_of(uint64_t seed, const std::string& name) {
  for (unsigned char ch : name) seed = mix(seed ^ ch);
  return seed;
}

}  // namespace

// By Box-Muller.
void fill_normal(float* out, int64_t n, uint64_t seed, const std::string& name, double std) {
  const uint64_t key = key_of(seed, name);
  at::parallel_for(0, (n + 1) / 2, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const uint64_t a = mix(key ^ mix(2 * i)), b = mix(key ^ mix(2 * i + 1));
      const double u = (static_cast<double>(a >> 11) + 1) * 0x1p-53, v = static_cast<double>(b >> 11) * 0x1p-53;
      const double r = std * std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
      out[2 * i] = static_cast<float>(r * std::cos(angle));
      if (2 * i + 1 < n) out[2 * i + 1] = static_cast<float>(r * std::sin(angle));
    }
  });
}

void fill_uniform(float* out, int64_t n, uint64_t seed, const std::string& name, double bound) {
  const uint64_t key = key_of(seed, name);
  for (int64_t i = 0; i < n; i++) {
    const double u = static_cast<double>(mix(key ^ mix(i)) >> 11) * 0x1p-53;
    out[i] = static_cast<float>((2 * u - 1) * bound);
  }
}

}  // namespace af
