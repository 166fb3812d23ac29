// What computes the rows of an inference step, on the CPU or on a device: cache.cc checks the steps, and samples from
// the logits.
#pragma once
#include "internal.h"
#include "team.h"

namespace af {

// What a cache is made for.
struct CacheShape {
  std::shared_ptr<af_model> model;
  int64_t num_blocks = 0, block_size = 0;
  bool half = false;  // it computes in bfloat16

  // Where the key and the value of a sequence's token lie: their place among the num_blocks * block_size of the cache.
  int64_t slot(const af_step& s, int64_t sequence, int64_t position) const {
    const int32_t* blocks = s.block_table + sequence * s.max_blocks;
    return blocks[position / block_size] * block_size + position % block_size;
  }
  // [R] whether a row's key and value go to the cache. Several rows may be the same token of a shared block: the last
  // one of a prompt that a group shares whole. The first of them writes.
  std::vector<bool> writers(const af_step& s) const;
  // [R] where they go in a cache that has one place more, behind the others, for what is not to be kept.
  std::vector<int64_t> slots(const af_step& s) const;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Computes a checked step: keys and values of its rows go to the cache, the logits of its outputs come back as
  // float32 rows [O, V or more] in host memory, which the caller may overwrite; undefined without outputs.
  virtual at::Tensor run(const af_step& s, Team& team) = 0;
  // Whether a row's result is the same bits whatever the other rows are.
  virtual bool batch_invariant() const = 0;
};

// decode_host.cc: the CPU, with products and attention of its own.
std::unique_ptr<Decoder> host_decoder(const CacheShape& shape);
// decode_device.cc: the operations of the trainer's forward, on the model's device and in its type.
std::unique_ptr<Decoder> device_decoder(const CacheShape& shape);

}  // namespace af
