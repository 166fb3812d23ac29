// Matrices packed in panels of 16 columns, and their products: what linear.h and attention in bfloat16 are made of. No
// libtorch here.
//
// Each sum is one chain of fused multiply-adds that depends on its row and column alone, the same on every processor
// with AVX2. In bfloat16 it goes by pairs of inner elements, the second of a pair before the first, as the instruction
// VDPBF16PS adds them (Intel's Software Developer's Manual, volume 2). Where the processor has it the product is that
// instruction; elsewhere it is two fused multiply-adds of the widened numbers. The bits are the same but where a
// factor, a product or a sum is subnormal, which the instruction takes for zero.
//
// Where the processor has AMX for bfloat16 the products of apply_panels are its TDPBF16PS, and their sums are others:
// 32 inner elements at a time (panel_amx.h). They, too, depend on row and column alone.
#pragma once
#include <cstdint>
#include <functional>

#include "kernels.h"

namespace af {

constexpr int64_t kPanel = 16;  // columns of a panel: two vectors of AVX2, one of AVX-512
// ceil(n / most): parts of at most so many.
inline int64_t parts_of(int64_t n, int64_t most) { return (n + most - 1) / most; }
inline int64_t in_panels(int64_t n) { return parts_of(n, kPanel) * kPanel; }

// Inner elements of a panel that lie side by side: a panel of K is [K, 16], in bfloat16 [padded(K)/2, 16, 2].
template <class W>
constexpr int64_t kGroup = 1;
template <>
inline constexpr int64_t kGroup<bfloat16> = 2;
template <class W>
int64_t padded(int64_t K) {
  return parts_of(K, kGroup<W>) * kGroup<W>;
}

// How threads share a loop, Team::run or at::parallel_for: run calls f(begin, end) for pieces that cover [0, n), each
// of at least grain but the last.
struct Loop {
  int64_t threads;
  std::function<void(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f)> run;
};

// Calls f(within, first, count) for parts of M rows, within being the loop to go through a part with. Where there are
// rows enough, a part is one thread's alone: what it makes of its rows, no other thread has in its cache, and fetching
// a line that another one has written takes a hundred times as long as writing it. Elsewhere all threads share the one
// part.
void in_parts(const Loop& loop, int64_t M,
              const std::function<void(const Loop& within, int64_t first, int64_t count)>& f);

struct Output {
  float* y;
  int64_t stride, width;  // rows lie stride apart and have width columns
  const float* bias;      // [width] added, may be null
  bool add;               // y +=
  bool rounded;           // what is stored is the nearest number of bfloat16
};

// Rows [M, K] of a product, which lie stride apart. make(i), where there is one, writes row i when it is needed, once.
struct Rows {
  const float* x;
  int64_t stride;
  std::function<void(int64_t)> make;
};

// Rows of numbers of bfloat16, as they lie.
struct HalfRows {
  const bfloat16* x;
  int64_t stride;
};
// y in bfloat16: the sums are rounded once, with add after what y holds was added.
struct HalfOutput {
  bfloat16* y;
  int64_t stride, width;
  const float* bias;
  bool add;
};

// The panels [ceil(N/16), padded(K), 16] of from [N, K], whose rows lie stride apart; zeros behind N and K.
void pack_panels(const Loop& loop, float* to, const float* from, int64_t N, int64_t K, int64_t stride);
void pack_panels(const Loop& loop, bfloat16* to, const float* from, int64_t N, int64_t K, int64_t stride);
void pack_panels(const Loop& loop, bfloat16* to, const bfloat16* from, int64_t N, int64_t K, int64_t stride);

// y [M, width = N] = x [M, K] w, w the panels: a chain for each piece of K, the pieces added in order. With w in
// bfloat16 x must hold numbers of bfloat16.
void apply_panels(const Loop& loop, const float* w, int64_t K, const Output& out, const Rows& x, int64_t M);
void apply_panels(const Loop& loop, const bfloat16* w, int64_t K, const Output& out, const Rows& x, int64_t M);
void apply_panels(const Loop& loop, const bfloat16* w, int64_t K, const Output& out, const HalfRows& x, int64_t M);
void apply_panels(const Loop& loop, const bfloat16* w, int64_t K, const HalfOutput& out, const HalfRows& x, int64_t M);

// Whether products of bfloat16 go by the instruction for pairs, where apply_panels takes no AMX. The first caller tries
// it.
bool takes_pairs();

// Panels [count, K/2, 16, 2] in pieces of K that lie anywhere: inner element k of panel p is k % piece of
// at[p * pieces + k / piece]. K and piece are even.
struct Panels {
  const bfloat16* const* at;
  int64_t count, pieces, piece, K;
};
// y [M, 16 * count], whose rows lie stride apart; with onward the sums go on from what y holds.
struct Sums {
  float* y;
  int64_t stride;
  bool onward;
};

// y = x [M, K] w, or y += with onward: one chain for each sum over all of K, and over that of the calls that it goes on
// from. x holds numbers of bfloat16, as bfloat16 where takes_pairs() and as float elsewhere.
void chain(const Sums& sums, const bfloat16* x, int64_t ldx, int64_t M, const Panels& w);
void chain(const Sums& sums, const float* x, int64_t ldx, int64_t M, const Panels& w);
// Calls f with a value of the type that the x of chain has.
template <class F>
void by_pairs(const F& f) {
  return takes_pairs() ? f(bfloat16()) : f(float());
}

}  // namespace af
