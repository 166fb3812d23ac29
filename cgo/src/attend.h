// Attention of rows of an inference step over the paged cache and, in bfloat16, of a block of the trainer's rows.
//
// In bfloat16 the two have the same bits where all numbers are finite: the trainer multiplies what a token does not
// see by zero, which spreads NaN and infinity, and the engine leaves it out. Both products go by pairs as panel.h says:
// a score is one chain over pairs of elements, an output one chain over the keys by pairs of positions 2i and 2i + 1,
// with a zero behind an odd end. The queries are not scaled, which would round them anew: the scores are. The
// probabilities exp(score - max) are rounded to bfloat16, and the softmax's denominator is the sum of the rounded ones,
// so that the weights add up to 1.
#pragma once
#include <cstdint>
#include <vector>

#include "panel.h"

namespace af {

// Where the keys and values of one layer and key/value head lie: block b's keys at keys + b * key_stride, its values at
// values + b * value_stride.
//
// In float32 keys are [E, block_size], values [block_size, E]. In bfloat16 they are panels of 16 tokens and of 16
// elements: [ceil(block_size / 16), E/2, 16, 2] and [ceil(E / 16), block_size / 2, 16, 2].
template <class W>
struct PagedHead {
  W *keys, *values;
  int64_t key_stride, value_stride;
  int64_t block_size;  // a multiple of 8
  int64_t E;
};

// Elements of a block's keys and of its values, of one layer and head.
template <class W>
int64_t key_elements(int64_t block_size, int64_t E) {
  return (kGroup<W> == 1 ? block_size : in_panels(block_size)) * E;
}
template <class W>
int64_t value_elements(int64_t block_size, int64_t E) {
  return block_size * (kGroup<W> == 1 ? E : in_panels(E));
}

// Writes the key and the value [E] of the token at slot of a block; in bfloat16 they are numbers of bfloat16.
void put(const PagedHead<float>& head, int64_t block, int64_t slot, const float* key, const float* value);
void put(const PagedHead<bfloat16>& head, int64_t block, int64_t slot, const float* key, const float* value);

// Grows to what the longest sequence needs; one for each thread.
struct AttendScratch {
  std::vector<float> scores, d_scores, out, total, rows;
  std::vector<bfloat16> half_rows, panels;
  std::vector<const bfloat16*> at;
};

// out [G, E] = softmax(q K^T) V of the queries q [G, E], already scaled, over the first n >= 1 tokens of a sequence
// whose token j lies in block blocks[j / block_size]. The order of every sum depends on n alone.
void attend(float* out, const float* q, int64_t G, const PagedHead<float>& head, const int32_t* blocks, int64_t n,
            AttendScratch& scratch);

// The queries of consecutive tokens of a sequence, G for each, and where what they get goes.
struct Queries {
  const float* q;  // token i's are q + i * q_stride [G, E]
  int64_t q_stride;
  float* out;  // as q
  int64_t out_stride, count, G;
};
// The same as softmax(scale q K^T) V of queries of bfloat16, whose last token sees the first n of the sequence, n >=
// count, and each one before it one less. out is not rounded, and has the same bits however many tokens come together.
void attend(const Queries& queries, const PagedHead<bfloat16>& head, float scale, const int32_t* blocks, int64_t n,
            AttendScratch& scratch);

// The queries of consecutive tokens, G for each, of one key/value head.
struct HalfBlock {
  const bfloat16* q;  // token i's are q + i * q_stride [G, E]
  int64_t q_stride, count, G, E;
  float scale;
  std::vector<const bfloat16*> keys, values;  // [E] each, of what the last token sees, in the order of positions
};
// out + i * out_stride [G, E] = what the engine gives token i, rounded to bfloat16, and lse + i * lse_stride [G] = the
// log of the denominator.
void attend_block(bfloat16* out, int64_t out_stride, float* lse, int64_t lse_stride, const HalfBlock& block,
                  AttendScratch& scratch);

// What backward reads and makes, laid out as out and lse above.
struct HalfGradients {
  const bfloat16 *out, *d_out;
  int64_t stride;  // of both
  const float* lse;
  int64_t lse_stride;
  bfloat16* d_q;
  int64_t d_q_stride;
  std::vector<float*> d_keys, d_values;  // [E] each, as keys and values; added to
};
// All five products go by pairs. The probabilities exp(score - lse) and the gradients of the scores are rounded to
// bfloat16 for those that they enter.
void attend_block_backward(const HalfBlock& block, const HalfGradients& gradients, AttendScratch& scratch);

}  // namespace af
