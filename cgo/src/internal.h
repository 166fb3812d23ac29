// What the .cc files share: error guard, handle counter, and the model's parameters.
//
// Legend of suffixes: T packed tokens, R rows of an inference step, N prediction rows, D hidden, H query heads,
// K key/value heads, E head_dim, F intermediate, V vocabulary.
#pragma once
#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../af.h"
#include "pool.h"

struct af_error {
  int code;
  std::string message;
};

namespace af {

extern std::atomic<int64_t> live;  // handles made and not freed

struct InputError : std::runtime_error {  // the caller's arguments are wrong: AF_ERR_INPUT
  using std::runtime_error::runtime_error;
};
struct NonFiniteError : std::runtime_error {  // AF_ERR_NONFINITE
  using std::runtime_error::runtime_error;
};
struct RankError : std::runtime_error {  // another rank is late, gone or failed: AF_ERR_RANK
  using std::runtime_error::runtime_error;
};

af_error* make_error(int code, const char* message) noexcept;  // static object when memory is out
af_error* memory_error() noexcept;

// Runs f and turns whatever it throws into an af_error.
template <class F>
af_error* guard(F&& f) noexcept {
  try {
    f();
    return nullptr;
  } catch (const InputError& e) {
    return make_error(AF_ERR_INPUT, e.what());
  } catch (const NonFiniteError& e) {
    return make_error(AF_ERR_NONFINITE, e.what());
  } catch (const RankError& e) {
    return make_error(AF_ERR_RANK, e.what());
  } catch (const c10::Error& e) {
    return make_error(AF_ERR_TORCH, e.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return memory_error();
  } catch (const std::exception& e) {
    return make_error(AF_ERR_STD, e.what());
  } catch (...) {
    return make_error(AF_ERR_UNKNOWN, "unknown C++ exception");
  }
}

inline at::Tensor& tensor(af_tensor t) {
  if (t == nullptr) throw InputError("tensor is closed or was never made");
  return *static_cast<at::Tensor*>(t);
}
af_tensor new_handle(at::Tensor t);  // counted in live until freed here or by gotorch's finalizer

void check_device(int device);  // InputError where libtorch sees no CUDA device of that index; below 0 is the CPU

// Elements of a flat buffer.
struct Range {
  int64_t begin, length;
};

// The parameters of one layer, or their gradients. Undefined tensors where the config has no such parameter.
struct Layer {
  at::Tensor q_weight_HED, k_weight_KED, v_weight_KED, o_weight_DHE;
  at::Tensor q_bias, k_bias, v_bias, o_bias;
  at::Tensor q_norm_E, k_norm_E;
  at::Tensor gate_weight_FD, up_weight_FD, down_weight_DF;
  at::Tensor gate_bias, up_bias, down_bias;
  at::Tensor input_norm_D, post_norm_D;
  // The same storage again, joined so that one product does the work of several.
  at::Tensor qkv_weight;      // [(H + 2K)E, D] = q, k, v
  at::Tensor qkv_bias;        // [(H + 2K)E]
  at::Tensor gate_up_weight;  // [2F, D] = gate, up
  at::Tensor gate_up_bias;    // [2F]
};

// The adapters of one product y = x W^T, whose W may join several projections.
struct LowRank {
  struct Part {
    int64_t column, rows;  // of y, rows of W
    at::Tensor B;          // [rows, R]
  };
  at::Tensor A;             // [parts * R, in]: the A of the parts, one below the other; undefined without adapters
  std::vector<Part> parts;  // the projections that have one
};
struct LayerAdapters {
  LowRank qkv, o, gate_up, down;
};

// What a model's parameters are made of.
struct Layout {
  const af_model_config* config = nullptr;
  bool value_head = false;
  int64_t rank = 0;      // of the adapter; 0: none
  unsigned targets = 0;  // AF_TARGET_*
};

// What a model's forwards and backwards are made of.
enum class Path {
  kKernels,   // kernels.h: the CPU
  kSegments,  // ATen operations of any device, attention one segment at a time
  kVarlen,    // the same with attention as one call of variable lengths, on ATen: the reference of the next
  kFlash,     // the same with libtorch's flash attention: CUDA in bfloat16
};

// The parameters of a model (or their gradients, or an optimizer's moments) as views of one flat buffer. With an
// adapter that buffer holds the adapter, and the base model lies in another one; gradients and moments have no base
// then.
struct Parameters {
  at::Tensor flat;                       // [P] float32: all that is trained
  at::Tensor frozen;                     // the base model's buffer where it is not trained
  at::Tensor embed_VD, norm_D, head_VD;  // head_VD is embed_VD when tied
  std::vector<Layer> layers;
  std::vector<LayerAdapters> adapters;       // empty without an adapter
  at::Tensor value_weight_1D, value_bias_1;  // undefined without a value head
  std::vector<std::string> names;            // Hugging Face names of the base model, in file order
  std::vector<std::string> trained;          // names of what lies in flat, in its order
  std::vector<Range> parts;  // of flat, in its order: see part_* below; each begins and ends on a cache line
  std::unordered_map<std::string, at::Tensor> by_name;  // views of both
};
// The parts of a flat buffer by what a forward reads at once: the embeddings, each layer, the last norm with a head of
// its own, the value head. With an adapter a layer's part is its adapters; a part may be empty.
constexpr int64_t part_embed = 0;
constexpr int64_t part_layer(int64_t layer) { return layer + 1; }
constexpr int64_t part_head(int64_t layers) { return layers + 1; }
constexpr int64_t part_value(int64_t layers) { return layers + 2; }

class Exchange;  // exchange.h

// Lays the views over flat [layout_size] and frozen.
Parameters lay_out(const Layout& layout, at::Tensor flat, at::Tensor frozen);
int64_t layout_size(const Layout& layout);
at::Tensor new_flat(int64_t size, at::Device device);  // zeros, float32

// Value i of out [n] depends on (seed, name, i) alone: N(0, std), and uniform within (-bound, bound).
void fill_normal(float* out, int64_t n, uint64_t seed, const std::string& name, double std);
void fill_uniform(float* out, int64_t n, uint64_t seed, const std::string& name, double bound);

}  // namespace af

// Autograd nodes, optimizers and caches keep a model alive through shared_from_this: the order of frees does not
// matter.
struct af_model : af::Parameters, std::enable_shared_from_this<af_model> {
  af_model_config config;  // inv_freq points into inv_freq_storage
  std::vector<float> inv_freq_storage;
  af::Layout layout;
  at::Device device = at::kCPU;
  af::Parameters grad;                                            // grad.flat is undefined until the first backward
  bool grad_is_zero = false;                                      // nothing was added to grad.flat since it was zeros
  uint64_t version = 0;                                           // bumped by every change of a parameter
  std::shared_ptr<af::Pool> pool = std::make_shared<af::Pool>();  // of intermediates, CPU only
  double adapter_scale = 0;                                       // alpha / rank
  bool adapter_on = false;                                        // forwards use the adapter
  at::ScalarType dtype = at::kFloat;  // that forwards and backwards compute in: float32 or bfloat16
  uint64_t base_version = 0;          // bumped by every change of the base model
  af::Path path = af::Path::kKernels;
  int asked_path = -1;             // AF_PATH_* of a test; -1: the one of device and dtype
  std::shared_ptr<af_model> self;  // the caller's reference, dropped by af_model_free
  // What goes on between the ranks while this model computes; null where nothing does.
  std::shared_ptr<af::Exchange> exchange;
  // The float32 parameters are spread over the ranks, and forwards read a rounded copy that the optimizer keeps up to
  // date. flat is a meta tensor then, or, where they were gathered, what they were when they were gathered.
  bool spread = false;
  at::Tensor held_gradient;  // [P] in host memory: the gradient of a model that was released

  // An uninitialised tensor on the device, from the pool where there is one.
  at::Tensor scratch(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) const;
  // One of the type that forwards compute in.
  at::Tensor activation(at::IntArrayRef sizes) const;
  // Sets path anew, after a change of what it is chosen by.
  void choose_path();
  // The parameters in that type: the model itself, or a rounded copy that is made anew after a change.
  const af::Parameters& weights();
  // The rounded copy of flat, for whoever changes flat and rounds it by the way: it says took_rounded() once the
  // version is that of the change. Undefined where forwards read flat, and before the first forward.
  at::Tensor rounded_flat() const;
  void took_rounded() { rounded_version_ = version; }
  // The view called name in which (parameters, gradients or moments); InputError when the model has none of that name.
  const at::Tensor& find(const af::Parameters& which, const char* name) const;
  // Zeros laid out as what is trained.
  af::Parameters zeros() const;
  // Lays the parameters over another buffer: float32 or meta.
  void lay_over(at::Tensor buffer);
  // Rounds flat, and from then on leaves the rounded copy to the optimizer.
  void spread_out();
  // Gives the device's memory back but for the parameters: a gradient that is not zero goes to host memory, what can be
  // computed again is dropped.
  void release();
  // The gradient comes back; the rest comes with the next forward and backward.
  void restore();

 private:
  af::Parameters rounded_;
  uint64_t rounded_version_ = 0, rounded_base_version_ = 0;
};

namespace af {

// The base model's weight w with its adapter added: w itself without one.
at::Tensor merged(const af_model& m, const at::Tensor& w, const LowRank& a);
at::Tensor merged(const af_model& m, const char* name);

}  // namespace af
