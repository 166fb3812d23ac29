// VDPBF16PS and TDPBF16PS on any processor, for pairs.cc and tiles.cc: what panel.cc's tiles need of an instruction
// set, lane by lane.
//
// Intel's Software Developer's Manual, volume 2, VDPBF16PS: for each lane the product of the second elements is added
// first, then that of the first ones. Each is a fused multiply-add, rounded to the nearest, ties to even; subnormal
// factors are taken for zeros, and a subnormal result becomes zero.
namespace dot {

enum class Fault { kNone, kFirstBeforeSecond, kCrossed };
inline Fault fault = Fault::kNone;  // what is wrong with the instruction

constexpr int kTile = 8, kSums = 24;
struct Sixteen {
  float v[16];
};
struct Pairs {
  bfloat16 v[32];
};
template <class F>
inline Sixteen lanes(const F& f) {
  Sixteen all;
  for (int i = 0; i < 16; i++) all.v[i] = f(i);
  return all;
}
inline bool available() { return true; }
inline Sixteen zero() { return lanes([](int) { return 0.0f; }); }
inline Sixteen load(const float* p) { return lanes([&](int i) { return p[i]; }); }
inline void store(float* p, Sixteen x) { std::copy_n(x.v, 16, p); }
inline Sixteen add(Sixteen x, Sixteen y) { return lanes([&](int i) { return x.v[i] + y.v[i]; }); }
inline Sixteen to_half(Sixteen x) {
  return lanes([&](int i) {
    bfloat16 half;
    round_to(half, x.v[i]);
    return widened(half);
  });
}
inline Pairs load_pairs(const bfloat16* w) {
  Pairs all;
  std::copy_n(w, 32, all.v);
  return all;
}
inline Sixteen first_of_pairs(const bfloat16* w) { return lanes([&](int i) { return widened(w[2 * i]); }); }
inline Sixteen second_of_pairs(const bfloat16* w) { return lanes([&](int i) { return widened(w[2 * i + 1]); }); }
inline void multiply_add(Sixteen& sum, const float* x, Sixteen w) {
  sum = lanes([&](int i) { return std::fma(*x, w.v[i], sum.v[i]); });
}

inline float flushed(float x) { return x * static_cast<float>(std::abs(x) >= std::numeric_limits<float>::min()); }
inline float added(float sum, bfloat16 x, bfloat16 w) {
  return flushed(std::fma(flushed(widened(x)), flushed(widened(w)), flushed(sum)));
}
[[gnu::target_clones("default", "arch=haswell"), gnu::optimize("O3")]] void multiply_add(Sixteen& sum,
                                                                                         const bfloat16* x,
                                                                                         const Pairs& w) {
  const int begin = fault == Fault::kFirstBeforeSecond ? 0 : 1, crossed = fault == Fault::kCrossed ? 1 : 0;
  for (const int i : {begin, 1 - begin}) {
    for (int lane = 0; lane < 16; lane++) sum.v[lane] = added(sum.v[lane], x[i ^ crossed], w.v[2 * lane + i]);
  }
}
#include "../../src/panel_tile.h"

}  // namespace dot

// Intel's Software Developer's Manual, volume 2, TDPBF16PS: for each element of the sums the products of the first
// elements of the pairs make one chain of fused multiply-adds, those of the second ones another; the sum of the two is
// added to the element. Rounding and subnormal numbers are as above.
namespace amx {

inline bool present = false;
inline bool fault = false;  // x's elements are taken crosswise
inline bool available() { return present; }

struct Register {
  int64_t rows = 0;
  alignas(64) bfloat16 v[16][32];
};
inline thread_local Register registers[8];

inline Register& shaped(int tile) {
  if (registers[tile].rows == 0) std::abort();  // the processor raises #UD
  return registers[tile];
}
template <class Shape>
void shape(const Shape& to) {
  for (int i = 0; i < 8; i++) {
    if (to.palette != 1 || to.start_row != 0 || to.bytes[i] != (to.rows[i] > 0 ? 64 : 0) || to.rows[i] > 16)
      std::abort();
    registers[i] = {to.rows[i], {}};
  }
}
inline void release() {
  for (Register& r : registers) r = {};
}
template <int tile>
void zero() {
  shaped(tile) = {shaped(tile).rows, {}};
}
template <int tile>
void load(const bfloat16* from) {
  Register& r = shaped(tile);
  r = {r.rows, {}};
  std::copy_n(from, r.rows * 32, r.v[0]);
}
template <int tile>
void store(float* to) {
  const Register& r = shaped(tile);
  std::memcpy(to, r.v, r.rows * 64);
}
[[gnu::target_clones("default", "arch=haswell"), gnu::optimize("O3")]] void add_products(Register& all,
                                                                                         const Register& x,
                                                                                         const Register& w) {
  if (all.rows != x.rows || w.rows != 16) std::abort();
  for (int64_t m = 0; m < all.rows; m++) {
    float chains[2][16] = {}, sum[16];
    for (int k = 0; k < 16; k++) {
      for (int i = 0; i < 2; i++) {
        const bfloat16 v = x.v[m][2 * k + (fault ? 1 - i : i)];
        for (int n = 0; n < 16; n++) chains[i][n] = dot::added(chains[i][n], v, w.v[k][2 * n + i]);
      }
    }
    std::memcpy(sum, all.v[m], sizeof sum);
    for (int n = 0; n < 16; n++) {
      sum[n] = dot::flushed(dot::flushed(sum[n]) + dot::flushed(chains[0][n] + chains[1][n]));
    }
    std::memcpy(all.v[m], sum, sizeof sum);
  }
}
template <int sums, int x, int w>
void add_products() {
  add_products(shaped(sums), shaped(x), shaped(w));
}
#include "../../src/panel_amx.h"

}  // namespace amx
