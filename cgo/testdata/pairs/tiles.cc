// Products of bfloat16 by AMX, compiled from the library's source, beside the definition of its instruction in Intel's
// manual, element by element: the same bits. ../../pairs_test.go builds and runs it with AF_EMULATED_PAIRS, and without
// for a processor that has AMX.
//
// usage: tiles [crossed]    with an instruction that takes x's elements crosswise
#include <random>
#include <string>
#include <vector>

#include "../../src/panel.cc"

namespace {

using af::bfloat16;

const af::Loop in_threes{2, [](int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& f) {
                           for (int64_t i = 0; i < n; i += 3) f(i, std::min(i + 3, n));
                         }};

struct Case {
  int64_t M, N, K;
  bool bias, add, rounded;
  float scale;  // of all numbers
};

float flushed(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? 0 : x; }

// The sum over the inner elements begin .. end, 32 at a time, of a row and a column, both of K numbers.
float sum_of(const bfloat16* x, const bfloat16* w, int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t step = begin; step < end; step += 32) {
    float chains[2] = {};
    for (int64_t k = step; k < std::min(step + 32, end); k++) {
      float& chain = chains[k % 2];
      chain = flushed(std::fma(flushed(af::widened(x[k])), flushed(af::widened(w[k])), chain));
    }
    sum = flushed(sum + flushed(chains[0] + chains[1]));
  }
  return sum;
}

struct Counts {
  int64_t cases = 0, elements = 0, different = 0, of_halves = 0, untouched = 0;
};

void compare(const Case& c, int64_t gap, const af::Loop& loop, std::mt19937& random, Counts& counts) {
  std::normal_distribution<float> normal(0, c.scale);
  const int64_t ldx = c.K + gap, ldy = c.N + gap;
  std::vector<bfloat16> x(c.M * ldx), w(c.N * c.K), half_y(c.M * ldy);
  std::vector<float> bias(c.N), wide_x, y;
  for (auto* all : {&x, &w, &half_y}) {
    for (bfloat16& v : *all) af::round_to(v, normal(random));
  }
  for (float& v : bias) v = normal(random);
  for (const bfloat16 v : x) wide_x.push_back(af::widened(v));
  for (const bfloat16 v : half_y) y.push_back(af::widened(v));
  std::vector<bfloat16> panels(af::in_panels(c.N) * af::padded<bfloat16>(c.K), 0x7fc0);  // in memory that held NaN
  af::pack_panels(af::kAtOnce, panels.data(), w.data(), c.N, c.K, c.K);

  std::vector<float> want = y, of_wide = y, of_halves = y;
  std::vector<bfloat16> want_half = half_y;
  const int64_t pieces = (c.K + 383) / 384, steps = (c.K + 31) / 32;
  for (int64_t r = 0; r < c.M; r++) {
    for (int64_t n = 0; n < c.N; n++) {
      float sum = y[r * ldy + n];
      for (int64_t i = 0; i < pieces; i++) {
        const int64_t begin = steps * i / pieces * 32, end = std::min(c.K, steps * (i + 1) / pieces * 32);
        float piece = sum_of(&x[r * ldx], &w[n * c.K], begin, end);
        if (i == 0 && c.bias) piece += bias[n];
        sum = c.add || i > 0 ? piece + sum : piece;
      }
      bfloat16 half;
      af::round_to(half, sum);
      want[r * ldy + n] = c.rounded ? af::widened(half) : sum;
      want_half[r * ldy + n] = half;
    }
  }
  const float* added = c.bias ? bias.data() : nullptr;
  const af::HalfRows rows{x.data(), ldx};
  af::apply_panels(loop, panels.data(), c.K, af::Output{of_wide.data(), ldy, c.N, added, c.add, c.rounded},
                   {wide_x.data(), ldx, nullptr}, c.M);
  af::apply_panels(loop, panels.data(), c.K, af::Output{of_halves.data(), ldy, c.N, added, c.add, c.rounded}, rows,
                   c.M);
  af::apply_panels(loop, panels.data(), c.K, af::HalfOutput{half_y.data(), ldy, c.N, added, c.add}, rows, c.M);
  counts.cases++, counts.elements += c.M * c.N;
  for (size_t i = 0; i < want.size(); i++) {
    const bool inside = static_cast<int64_t>(i) % ldy < c.N;
    counts.different += std::memcmp(&want[i], &of_wide[i], sizeof(float)) != 0;
    counts.of_halves += std::memcmp(&want[i], &of_halves[i], sizeof(float)) != 0 || want_half[i] != half_y[i];
    counts.untouched += !inside && want[i] == of_wide[i];
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "";
#ifdef AF_EMULATED_PAIRS
  af::amx::present = true;
  if (fault == "crossed") af::amx::fault = true;
#else
  if (!fault.empty()) return 2;
#endif
  std::mt19937 random(1);
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Counts counts;
  for (const int64_t M : {1, 2, 7, 8, 15, 16, 17, 20, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65}) {
    for (int i = 0; i < 8; i++) {  // less than a step, some steps, the edge of a piece, several pieces
      const int64_t K = i < 2 ? from(1, 40) : i < 4 ? 32 * from(1, 8) : i < 6 ? from(380, 420) : from(700, 900);
      const Case c{M, from(1, 100), K, from(0, 1) == 1, from(0, 1) == 1, from(0, 1) == 1, i == 1 ? 1e-20f : 1};
      compare(c, from(0, 1) * 3, from(0, 1) == 1 ? af::kAtOnce : in_threes, random, counts);
    }
  }
  for (const int64_t M : {192, 193, 225, 400})  // one block of rows, its edge, several
    compare({M, from(1, 20), from(1, 800), true, false, true, 1}, 2, af::kAtOnce, random, counts);
  std::printf("tiles %d, cases %lld, elements %lld, different %lld, of halves %lld, untouched %lld\n",
              af::takes_tiles() ? 1 : 0, static_cast<long long>(counts.cases), static_cast<long long>(counts.elements),
              static_cast<long long>(counts.different), static_cast<long long>(counts.of_halves),
              static_cast<long long>(counts.untouched));
}
