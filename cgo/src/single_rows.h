// Steps of single rows, as decoding is made of: a token of each of several sequences. They are computed at one of a few
// sizes, by rows that change nothing where there are fewer, from inputs that lie in one buffer of the device. So a
// device can record the launches of a size and repeat them at once: to make some 300 of them one by one takes the CPU
// longer than the device takes to compute them.
#pragma once
#include <map>

#include "decode.h"
#include "train.h"

namespace af::cuda {
class Recorder;  // cuda/graph.h
}

namespace af {

class SingleRows {
 public:
  // kv [slots, 2KE] of each layer, which must outlive it; the last slot takes what is not to be kept.
  SingleRows(const CacheShape& shape, const std::vector<at::Tensor>& kv);
  ~SingleRows();

  // Whether a step is of such rows alone, and not of too many.
  bool takes(const af_step& s) const;
  // The logits [num_outputs, V] on the device, as they are until the next run.
  at::Tensor run(const af_step& s);

 private:
  struct Size {
    int64_t rows, keys;  // of a sequence at most
    auto operator<=>(const Size&) const = default;
  };
  // What the recorded launches read besides their inputs: where it lies.
  struct Weights {
    const void *trained = nullptr, *frozen = nullptr, *head = nullptr;
    Path path = Path::kKernels;
    bool operator==(const Weights&) const = default;
  };
  class Step;
  Size size_of(const af_step& s) const;
  Weights weights() const;
  Step& step_of(const Size& size);
  void record(Step& step);

  const CacheShape shape_;
  const std::vector<at::Tensor>& kv_;
  std::unique_ptr<cuda::Recorder> recorder_;  // null: launches are not recorded
  Weights recorded_;                          // by the graphs of steps_
  Plan rotations_;                            // cos_T and sin_T of positions 0, 1, ...
  at::Tensor inputs_;                         // in host memory, of the largest step so far
  std::map<Size, std::unique_ptr<Step>> steps_;
};

}  // namespace af
