// VDPBF16PS on any processor, for pairs.cc: what panel.cc's tiles need of an instruction set, lane by lane.
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
