// Attention in bfloat16 from the library's source: the engine's, token by token over a paged cache whose memory held
// NaN, beside the trainer's, by blocks of tokens: the same bits. ../../pairs_test.go builds and runs it.
//
// usage: attend [crossed]    with an emulated instruction that is wrong, so that the processor's own tile computes
#include "../../src/attend.h"

#include <numeric>
#include <random>

#include "../../src/panel.cc"

namespace {

using af::bfloat16;

std::mt19937 random_bits(1);
int64_t from(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_bits); }

std::vector<bfloat16> numbers(int64_t n, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<bfloat16> all(n);
  for (bfloat16& v : all) af::round_to(v, normal(random_bits));
  return all;
}
std::vector<float> wide(const std::vector<bfloat16>& all) {
  std::vector<float> to;
  for (const bfloat16 v : all) to.push_back(af::widened(v));
  return to;
}

constexpr bfloat16 kNaN = 0x7fc0;

// The rows of width that from holds one behind the other, stride apart with NaN between them; and back.
std::vector<bfloat16> spread(const std::vector<bfloat16>& from, int64_t width, int64_t stride) {
  std::vector<bfloat16> to(from.size() / width * stride, kNaN);
  for (size_t i = 0; i < from.size(); i++) to[i / width * stride + i % width] = from[i];
  return to;
}
std::vector<bfloat16> dense(const std::vector<bfloat16>& from, int64_t width, int64_t stride) {
  std::vector<bfloat16> to(from.size() / stride * width);
  for (size_t i = 0; i < to.size(); i++) to[i] = from[i / width * stride + i % width];
  return to;
}

// What a scratch held before must not matter.
void poison(af::AttendScratch& scratch) {
  for (auto* all : {&scratch.scores, &scratch.d_scores, &scratch.out, &scratch.total, &scratch.rows})
    std::fill(all->begin(), all->end(), af::widened(kNaN));
  for (auto* all : {&scratch.half_rows, &scratch.panels}) std::fill(all->begin(), all->end(), kNaN);
  std::fill(scratch.at.begin(), scratch.at.end(), nullptr);
}

struct Count {
  int64_t rows = 0, together = 0, different = 0, wrong = 0, log_wrong = 0;
  double farthest = 0;  // of a sequence's gradient, in units of its length
  double from_rounded = 0,
         from_all = 0;  // of lse, from the log of the sum of the rounded probabilities and of all of them
};

// A sequence of n tokens, G queries each, in blocks of size.
void sequence(int64_t n, int64_t G, int64_t E, int64_t size, Count& count) {
  const std::vector<bfloat16> queries = numbers(n * G * E, 1), keys = numbers(n * E, 1), values = numbers(n * E, 1);
  const std::vector<float> q = wide(queries), k = wide(keys), v = wide(values);
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(E)));

  const int64_t used = (n + size - 1) / size, key = af::key_elements<bfloat16>(size, E),
                value = af::value_elements<bfloat16>(size, E);
  std::vector<int32_t> blocks(used);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random_bits);
  std::vector<bfloat16> key_memory(used * key, kNaN), value_memory(used * value, kNaN);
  const af::PagedHead<bfloat16> head{key_memory.data(), value_memory.data(), key, value, size, E};
  std::vector<bfloat16> engine(n * G * E);
  std::vector<float> alone(n * G * E);
  af::AttendScratch scratch;
  for (int64_t t = 0; t < n; t++) {
    af::put(head, blocks[t / size], t % size, &k[t * E], &v[t * E]);
    poison(scratch);
    float* out = &alone[t * G * E];
    af::attend({&q[t * G * E], 0, out, 0, 1, G}, head, scale, blocks.data(), t + 1, scratch);
    for (int64_t i = 0; i < G * E; i++) af::round_to(engine[t * G * E + i], out[i]);
  }
  // The same of tokens that come together, when no later one is in the cache.
  std::fill(key_memory.begin(), key_memory.end(), kNaN), std::fill(value_memory.begin(), value_memory.end(), kNaN);
  for (int64_t first = 0; first < n;) {
    const int64_t length = std::min(from(1, 12), n - first), apart = G * E + 3;
    std::vector<float> rows(length * (G * E + 5)), out(length * apart);
    for (int64_t i = 0; i < length; i++) {
      const int64_t t = first + i;
      af::put(head, blocks[t / size], t % size, &k[t * E], &v[t * E]);
      std::copy_n(&q[t * G * E], G * E, &rows[i * (G * E + 5)]);
    }
    const auto together = [&] {
      poison(scratch);
      af::attend({rows.data(), G * E + 5, out.data(), apart, length, G}, head, scale, blocks.data(), first + length,
                 scratch);
    };
    together();
    const auto compare = [&](int64_t tokens) {
      for (int64_t i = 0; i < tokens * G; i++) {
        const float *one = &alone[first * G * E + i * E], *together = &out[i / G * apart + i % G * E];
        count.together += std::memcmp(one, together, E * sizeof(float)) != 0;
      }
    };
    compare(length);
    // A value of the last token that is no number is nothing to those before it.
    const int64_t last = first + length - 1;
    const std::vector<float> bad(E, af::widened(kNaN));
    af::put(head, blocks[last / size], last % size, &k[last * E], bad.data());
    std::fill(out.begin(), out.end(), 0.0f);
    together();
    compare(length - 1);
    af::put(head, blocks[last / size], last % size, &k[last * E], &v[last * E]);
    first += length;
  }
  // Of rows and of the log of the denominator, how far apart tokens lie.
  const int64_t of_q = G * E + 6, of_out = G * E + 2, of_d_q = G * E + 4, of_lse = G + 1;
  const std::vector<bfloat16> q_rows = spread(queries, G * E, of_q);
  std::vector<bfloat16> out_rows(n * of_out, kNaN), d_q_rows(n * of_d_q, kNaN);
  std::vector<float> lse(n * of_lse);
  const auto block_of = [&](int64_t first, int64_t length) {
    af::HalfBlock block{&q_rows[first * of_q], of_q, length, G, E, scale, {}, {}};
    for (int64_t t = 0; t < first + length; t++)
      block.keys.push_back(&keys[t * E]), block.values.push_back(&values[t * E]);
    poison(scratch);
    return block;
  };
  for (int64_t first = 0; first < n;) {
    const int64_t length = std::min(from(1, 40), n - first);
    af::attend_block(&out_rows[first * of_out], of_out, &lse[first * of_lse], of_lse, block_of(first, length), scratch);
    first += length;
  }
  const std::vector<bfloat16> trainer = dense(out_rows, G * E, of_out), d_out = numbers(n * G * E, 1);
  const std::vector<bfloat16> d_out_rows = spread(d_out, G * E, of_out);
  const std::vector<float> d_o = wide(d_out);
  std::vector<float> d_keys(n * E), d_values(n * E);
  for (int64_t first = 0; first < n;) {
    const int64_t length = std::min(from(1, 40), n - first), row = first * of_out;
    bfloat16* d_q = &d_q_rows[first * of_d_q];
    af::HalfGradients d{&out_rows[row], &d_out_rows[row], of_out, &lse[first * of_lse], of_lse, d_q, of_d_q, {}, {}};
    for (int64_t t = 0; t < first + length; t++)
      d.d_keys.push_back(&d_keys[t * E]), d.d_values.push_back(&d_values[t * E]);
    af::attend_block_backward(block_of(first, length), d, scratch);
    first += length;
  }
  const std::vector<bfloat16> d_q = dense(d_q_rows, G * E, of_d_q);
  std::vector<double> exact_q(n * G * E), exact_keys(n * E), exact_values(n * E);
  for (int64_t row = 0; row < n * G; row++, count.rows++) {
    count.different += std::memcmp(&engine[row * E], &trainer[row * E], E * sizeof(bfloat16)) != 0;
    // in float64, nothing rounded
    const int64_t seen = row / G + 1;
    std::vector<double> p(seen), out(E);
    double total = 0;
    for (int64_t t = 0; t < seen; t++) {
      double s = 0;
      for (int64_t e = 0; e < E; e++) s += static_cast<double>(q[row * E + e]) * k[t * E + e];
      total += p[t] = std::exp(s * scale);
      for (int64_t e = 0; e < E; e++) out[e] += p[t] * v[t * E + e];
    }
    bool wrong = false;
    for (int64_t e = 0; e < E; e++) wrong |= !(std::abs(out[e] / total - af::widened(trainer[row * E + e])) < 0.02);
    count.wrong += wrong;
    double delta = 0;
    for (int64_t e = 0; e < E; e++) delta += out[e] / total * d_o[row * E + e];
    for (int64_t t = 0; t < seen; t++) {
      double d_p = 0;
      for (int64_t e = 0; e < E; e++) d_p += static_cast<double>(d_o[row * E + e]) * v[t * E + e];
      const double d_s = p[t] / total * (d_p - delta) * scale;
      for (int64_t e = 0; e < E; e++) {
        exact_values[t * E + e] += p[t] / total * d_o[row * E + e];
        exact_keys[t * E + e] += d_s * q[row * E + e];
        exact_q[row * E + e] += d_s * k[t * E + e];
      }
    }
    const double most = *std::max_element(p.begin(), p.end());
    double rounded = 0;
    for (const double x : p) {
      bfloat16 half;
      af::round_to(half, static_cast<float>(x / most));
      rounded += af::widened(half) * most;
    }
    count.from_rounded += std::abs(std::log(rounded) - lse[row / G * of_lse + row % G]);
    count.from_all += std::abs(std::log(total) - lse[row / G * of_lse + row % G]);
    count.log_wrong += !(std::abs(std::log(total) - lse[row / G * of_lse + row % G]) < 0.004);
  }
  const auto compare = [&](const std::vector<float>& got, const std::vector<double>& want) {
    double apart = 0, length = 1e-9;
    for (size_t i = 0; i < got.size(); i++)
      apart += (got[i] - want[i]) * (got[i] - want[i]), length += want[i] * want[i];
    if (n == 1) return;  // of one token d_q and d_keys are 0
    const double distance = std::sqrt(apart / length);
    count.farthest = std::isnan(distance) ? INFINITY : std::max(count.farthest, distance);
  };
  compare(wide(d_q), exact_q);
  compare(d_keys, exact_keys);
  compare(d_values, exact_values);
}

}  // namespace

int main(int argc, char** argv) {
#ifdef AF_EMULATED_PAIRS
  if (argc > 1 && std::strcmp(argv[1], "crossed") == 0) af::dot::fault = af::dot::Fault::kCrossed;
#endif
  Count count;
  for (const int64_t E : {2, 6, 8, 16, 20, 64, 128}) {
    for (const int64_t size : {8, 16, 24}) {
      for (int64_t G = 1; G <= 9; G += 2) sequence(from(1, 70), G, E, size, count);
    }
  }
  sequence(900, 3, 64, 16, count);  // several pieces of a chain
  std::printf(
      "pairs %d, rows %lld, together %lld, different %lld, wrong %lld, lse wrong %lld, of rounded %d, gradients %.4f "
      "apart\n",
      af::takes_pairs() ? 1 : 0, static_cast<long long>(count.rows), static_cast<long long>(count.together),
      static_cast<long long>(count.different), static_cast<long long>(count.wrong),
      static_cast<long long>(count.log_wrong), count.from_rounded < count.from_all / 10 ? 1 : 0, count.farthest);
}
