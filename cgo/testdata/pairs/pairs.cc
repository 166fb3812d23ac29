// The tile for pairs of bfloat16 numbers, compiled from the library's source against an emulated instruction, beside
// the tiles that multiply widened numbers: the same bits. ../../pairs_test.go builds and runs it with
// AF_EMULATED_PAIRS, and without for a processor that has the instruction.
//
// usage: pairs [first | crossed]    with an instruction that adds the first product first, or takes x's elements
// crosswise
#include <random>
#include <string>
#include <vector>

#include "../../src/panel.cc"

namespace {

using af::bfloat16;

struct Case {
  int64_t M, N, K;
  bool bias, add, rounded;
  float scale;  // of all numbers
};

// The panels of w [N, K], in memory that held NaN.
template <class W>
std::vector<bfloat16> packed(const std::vector<W>& w, int64_t N, int64_t K) {
  std::vector<bfloat16> panels(af::parts_of(N, af::kPanel) * af::kPanel * af::padded<bfloat16>(K), 0x7fc0);
  af::pack_panels(af::kAtOnce, panels.data(), w.data(), N, K, K);
  return panels;
}

// Elements of which the two products differ.
int64_t differing(const Case& c, std::mt19937& random, bool plain) {
  std::normal_distribution<float> normal(0, c.scale);
  std::vector<float> x(c.M * c.K), w(c.N * c.K), bias(c.N), y(c.M * c.N);
  for (auto* all : {&x, &w, &bias, &y}) {
    for (float& v : *all) v = normal(random);
  }
  for (float& v : x) {
    bfloat16 half;
    af::round_to(half, v);
    v = af::widened(half);
  }
  const std::vector<bfloat16> panels = packed(w, c.N, c.K);
  std::vector<float> other = y;
  const auto output = [&](std::vector<float>& to) {
    return af::Output{to.data(), c.N, c.N, c.bias ? bias.data() : nullptr, c.add, c.rounded};
  };
  af::apply_panels(af::kAtOnce, panels.data(), c.K, output(y), {x.data(), c.K, nullptr}, c.M);
  if (plain) {  // without intrinsics
    af::multiply_plain(output(other), x.data(), c.K, c.M, panels.data(), c.K, 0, af::parts_of(c.N, af::kPanel));
  } else {
    af::apply(af::kAtOnce, panels.data(), c.K, output(other), af::Rows{x.data(), c.K, nullptr}, c.M);
  }
  int64_t n = 0;
  for (size_t i = 0; i < y.size(); i++) n += std::memcmp(&y[i], &other[i], sizeof(float)) != 0;
  return n;
}

// Numbers of rows of bfloat16 that lie apart, times w, that differ from those of the same rows in float32, where y is
// float32 and where it is bfloat16; further, the numbers of y that should not have been touched and were.
int64_t differing_halves(const Case& c, int64_t gap, std::mt19937& random) {
  std::normal_distribution<float> normal(0, c.scale);
  const int64_t ldx = c.K + gap, ldy = c.N + gap;
  std::vector<bfloat16> half_x(c.M * ldx), half_y(c.M * ldy), w(c.N * c.K);
  std::vector<float> bias(c.N);
  for (auto* all : {&half_x, &half_y, &w}) {
    for (bfloat16& v : *all) af::round_to(v, normal(random));
  }
  for (float& v : bias) v = normal(random);
  const std::vector<bfloat16> panels = packed(w, c.N, c.K);
  std::vector<float> x, y;
  for (const bfloat16 v : half_x) x.push_back(af::widened(v));
  for (const bfloat16 v : half_y) y.push_back(af::widened(v));
  std::vector<float> other = y, rounded = y;
  const auto output = [&](std::vector<float>& to, bool round) {
    return af::Output{to.data(), ldy, c.N, c.bias ? bias.data() : nullptr, c.add, round};
  };
  const af::HalfRows rows{half_x.data(), ldx};
  af::apply_panels(af::kAtOnce, panels.data(), c.K, output(y, c.rounded), {x.data(), ldx, nullptr}, c.M);
  af::apply_panels(af::kAtOnce, panels.data(), c.K, output(other, c.rounded), rows, c.M);
  af::apply_panels(af::kAtOnce, panels.data(), c.K, output(rounded, true), {x.data(), ldx, nullptr}, c.M);
  af::apply_panels(af::kAtOnce, panels.data(), c.K,
                   af::HalfOutput{half_y.data(), ldy, c.N, c.bias ? bias.data() : nullptr, c.add}, rows, c.M);
  int64_t n = 0;
  for (size_t i = 0; i < y.size(); i++) {
    const float widened = af::widened(half_y[i]);
    n += std::memcmp(&y[i], &other[i], sizeof(float)) != 0 || std::memcmp(&rounded[i], &widened, sizeof(float)) != 0;
  }
  return n;
}

// Sums of y = x w, whose panels lie in pieces, that differ between the library's choice of tile, in two calls, and the
// plain sum in one; further, the numbers of y that should not have been touched and were.
int64_t differing_chains(int64_t M, int64_t count, int64_t K, int64_t piece, int64_t gap, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1);
  const auto half = [&] {
    bfloat16 v;
    af::round_to(v, normal(random));
    return v;
  };
  const int64_t ldx = K + gap, pieces = af::parts_of(K, piece), size = piece * af::kPanel + gap;
  const int64_t stride = count * af::kPanel + gap;
  std::vector<bfloat16> x(M * ldx), w(count * pieces * size);
  for (bfloat16& v : x) v = half();
  for (bfloat16& v : w) v = half();
  std::vector<const bfloat16*> at;
  for (int64_t i = 0; i < count * pieces; i++) at.push_back(&w[i * size]);
  std::shuffle(at.begin(), at.end(), random);
  std::vector<float> wide(x.size()), y(M * stride, 7), want = y;
  for (size_t i = 0; i < x.size(); i++) wide[i] = af::widened(x[i]);
  const int64_t first = std::uniform_int_distribution<int64_t>(0, pieces)(random);  // pieces of the first call
  const auto part = [&](int64_t begin, int64_t end) {
    std::vector<const bfloat16*> some;
    for (int64_t i = 0; i < count * pieces; i++) {
      if (begin <= i % pieces && i % pieces < end) some.push_back(at[i]);
    }
    return some;
  };
  const std::vector<const bfloat16*> before = part(0, first), behind = part(first, pieces);
  const int64_t until = std::min(first * piece, K);
  af::by_pairs([&](auto type) {
    const auto* rows = [&] {
      if constexpr (std::is_same_v<decltype(type), float>) return wide.data();
      if constexpr (!std::is_same_v<decltype(type), float>) return x.data();
    }();
    if (until > 0) af::chain({y.data(), stride, false}, rows, ldx, M, {before.data(), count, first, piece, until});
    if (until < K) {
      af::chain({y.data(), stride, until > 0}, rows + until, ldx, M,
                {behind.data(), count, pieces - first, piece, K - until});
    }
  });
  af::chain_plain({want.data(), stride, false}, wide.data(), ldx, M, {at.data(), count, pieces, piece, K});
  int64_t n = 0;
  for (size_t i = 0; i < y.size(); i++) n += std::memcmp(&y[i], &want[i], sizeof(float)) != 0;
  return n;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "";
#ifdef AF_EMULATED_PAIRS
  if (fault == "first") af::dot::fault = af::dot::Fault::kFirstBeforeSecond;
  if (fault == "crossed") af::dot::fault = af::dot::Fault::kCrossed;
#else
  if (!fault.empty()) return 2;
  setenv("AGENTFLY_CPU", "avx512bf16", 0);  // AMX makes other sums: tiles.cc
#endif
  std::mt19937 random(1);
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const int64_t step = fault.empty() ? 1 : 4;  // a fault shows in fewer cases
  int64_t cases = 0, elements = 0, different = 0, plain = 0, small = 0, chains = 0, halves = 0;
  for (int64_t M = 1; M <= 40; M += step) {
    for (int i = 0; i < 12; i++, cases++) {
      const int64_t K = i < 4 ? from(1, 40) : i < 8 ? from(380, 390) : from(700, 1200);  // one piece, its edge, several
      const Case c{M, from(1, 150), K, from(0, 1) == 1, from(0, 1) == 1, from(0, 1) == 1, 1};
      different += differing(c, random, false);
      halves += differing_halves(c, from(0, 1) * 3, random);
      elements += c.M * c.N;
    }
    plain += differing({M, from(1, 150), from(1, 800), M % 2 == 1, M % 3 == 1, M % 5 < 2, 1}, random, true);
    for (const int64_t pairs : {from(1, 40), from(188, 196), from(300, 600)}) {  // one piece of K, its edge, several
      for (const int64_t piece : {int64_t{8}, int64_t{24}, 2 * pairs})
        chains += differing_chains(M, from(1, 9), 2 * pairs, piece, from(0, 1) * 6, random);
    }
    small += differing({M, 20, 101, false, false, false, 1e-20f}, random, false);
  }
  for (const int64_t M : {192, 193, 206, 384, 385, 400}) {  // one block of rows, its edge, several
    const Case c{M, from(1, 20), from(1, 800), M % 2 == 1, M % 3 == 1, true, 1};
    different += differing(c, random, false);
    halves += differing_halves(c, 2, random);
    elements += c.M * c.N;
    cases++;
  }
  std::printf(
      "pairs %d, cases %lld, elements %lld, different %lld, from plain %lld, in chains %lld, of halves %lld, of "
      "subnormal products %lld\n",
      af::takes_pairs() ? 1 : 0, static_cast<long long>(cases), static_cast<long long>(elements),
      static_cast<long long>(different), static_cast<long long>(plain), static_cast<long long>(chains),
      static_cast<long long>(halves), static_cast<long long>(small));
}
