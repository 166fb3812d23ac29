// What a forward and backward asks of a device, counted without one: on tensors without numbers (meta), an observer
// sees every operator of libtorch. Own kernels are seen by the driver that launches them.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <fstream>
#include <map>
#include <set>

#include "../train.h"
#include "scripted.h"

namespace af {
namespace {

struct Count {
  int64_t calls = 0;
  double bytes = 0, flop = 0;
};

// Operators that are one call whatever they are made of where they stand in for CUDA's.
bool is_whole(const std::string& name) {
  static const std::set<std::string> whole{"aten::mm",
                                           "aten::bmm",
                                           "aten::addmm",
                                           "aten::addmm_",
                                           "aten::_flash_attention_forward",
                                           "aten::_flash_attention_backward",
                                           "aten::segment_reduce"};
  return whole.contains(name);
}

class Counter {
 public:
  // An operator has begun, within the one before.
  void enter() { open_.push_back(0); }

  void leave(const at::RecordFunction& f) {
    const int64_t inside = open_.back();
    open_.pop_back();
    const std::string name = f.name();
    if (inside_whole(f)) return;
    const int64_t own = inside == 0 && works(f, name) ? 1 : 0;
    if (own > 0) add(f, name);
    if (!open_.empty()) open_.back() += inside + own;
  }

  void begin_whole() { whole_++; }
  void end_whole() { whole_--; }

  const std::map<std::string, Count>& counts() const { return counts_; }

 private:
  bool inside_whole(const at::RecordFunction&) const { return whole_ > 0; }

  // Neither a view, nor an allocation, nor a composite that turned out to do nothing.
  static bool works(const at::RecordFunction& f, const std::string& name) {
    const auto& op = f.operator_name();
    if (!op.has_value() || name.starts_with("aten::empty") || name.starts_with("aten::new_empty") ||
        name == "aten::resize_")
      return false;
    const auto handle = c10::Dispatcher::singleton().findSchema(*op);
    if (!handle.has_value() || handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
      return false;
    for (const auto& r : handle->schema().returns()) {
      if (r.alias_info() != nullptr && !r.alias_info()->isWrite()) return false;
    }
    return true;
  }

  static double bytes_of(const at::Tensor& t) {
    if (!t.defined()) return 0;
    double n = static_cast<double>(t.element_size());
    for (int64_t d = 0; d < t.dim(); d++) n *= t.stride(d) == 0 ? 1 : static_cast<double>(t.size(d));
    return n;
  }
  static double bytes_of(const c10::IValue* values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
      if (values[i].isTensor()) sum += bytes_of(values[i].toTensor());
      if (values[i].isTensorList()) {
        for (const at::Tensor& t : values[i].toTensorVector()) sum += bytes_of(t);
      }
    }
    return sum;
  }

  void add(const at::RecordFunction& f, const std::string& name) {
    Count& c = counts_[name];
    c.calls++;
    const auto in = f.inputs();
    const auto results = f.outputs();
    // The last argument of an operator that ends with out is written alone.
    const bool out = f.operator_name()->overload_name.ends_with("out");
    const double written = out ? bytes_of(&in.back(), 1) : bytes_of(results.data(), results.size());
    const bool picks = name == "aten::index_select" || name == "aten::gather";  // reads as much as it writes
    c.bytes += written + (picks ? written : bytes_of(in.data(), in.size() - (out ? 1 : 0)));
    const bool adds = name.starts_with("aten::addmm");
    if (name == "aten::mm" || name == "aten::bmm" || adds) {
      const at::Tensor a = in[adds ? 1 : 0].toTensor(), b = in[adds ? 2 : 1].toTensor();
      c.flop += 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
    }
  }

  std::vector<int64_t> open_;
  int whole_ = 0;
  std::map<std::string, Count> counts_;
};

Counter* counter = nullptr;

struct Whole : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> entered(const at::RecordFunction& f) {
  counter->enter();
  if (!is_whole(f.name())) return nullptr;
  counter->begin_whole();
  return std::make_unique<Whole>();
}
void left(const at::RecordFunction& f, at::ObserverContext* context) {
  if (context != nullptr) counter->end_whole();
  counter->leave(f);
}

struct Observed {
  Observed()
      : handle(at::addThreadLocalCallback(at::RecordFunctionCallback(entered, left)
                                              .needsInputs(true)
                                              .needsOutputs(true)
                                              .scopes({at::RecordScope::FUNCTION}))) {}
  ~Observed() { at::removeCallback(handle); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;
  at::CallbackHandle handle;
};

void step(af_model& m, const af_batch& b, const af_forward_options& o) {
  af_outputs out;
  af_error* e = af_model_forward(&m, &b, &o, &out);
  if (e != nullptr) throw std::runtime_error(af_error_message(e));
  const at::Tensor logprobs = tensor(out.logprobs);
  torch::autograd::backward({logprobs}, {at::ones_like(logprobs)});
  af_tensor_free(out.logprobs);
  if (out.entropy != nullptr) af_tensor_free(out.entropy);
}

}  // namespace
}  // namespace af

extern "C" af_error* af_cuda_counts(const af_model_config* c, int dtype, const af_batch* b, int checkpoint,
                                    const char* file) {
  return af::guard([&] {
    auto m = std::make_shared<af_model>();
    m->config = *c;
    m->device = at::kMeta;
    m->dtype = dtype == AF_BF16 ? at::kBFloat16 : at::kFloat;
    m->choose_path();
    m->layout.config = &m->config;
    static_cast<af::Parameters&>(*m) = af::lay_out(m->layout, af::new_flat(af::layout_size(m->layout), m->device), {});
    af_forward_options o{};
    o.grad = 1, o.checkpoint = checkpoint;
    af::step(*m, *b, o);  // rounds the weights, makes the gradients, and asks libtorch which products it has
    const char* log = std::getenv("SCRIPTED_CUDA_LOG");
    if (log != nullptr) std::ofstream(log, std::ios::trunc);
    af::Counter counter;
    af::counter = &counter;
    {
      const af::Observed observed;
      af::step(*m, *b, o);
    }
    af::counter = nullptr;
    std::ofstream out(file);
    for (const auto& [name, count] : counter.counts())
      out << name << " " << count.calls << " " << static_cast<int64_t>(count.bytes) << " "
          << static_cast<int64_t>(count.flop) << "\n";
    if (!out) throw af::InputError(std::string("file ") + file + " cannot be written");
  });
}
