// Attention of one row of an inference step over the paged cache.
#pragma once
#include <cstdint>

namespace af {

// Where the keys and values of one layer and key/value head lie: block b's keys at keys + b * stride are [E,
// block_size], its values at values + b * stride are [block_size, E].
struct PagedHead {
  const float *keys, *values;
  int64_t stride, block_size;  // block_size is a multiple of 8
  int64_t E;
};

// Floats of scratch that attend needs for n tokens.
inline int64_t attend_scratch(int64_t G, int64_t block_size, int64_t n) {
  return G * ((n + block_size - 1) / block_size * block_size);
}

// out [G, E] = softmax(q K^T) V of the queries q [G, E], already scaled, over the first n >= 1 tokens of a sequence
// whose token j lies in block blocks[j / block_size]. The order of every sum depends on n alone.
void attend(float* out, const float* q, int64_t G, const PagedHead& head, const int32_t* blocks, int64_t n,
            float* scratch);

}  // namespace af
