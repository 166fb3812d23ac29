// What a forward and backward asks of a device, counted without one: on tensors without numbers (meta), an observer
// sees every operator of libtorch. Own kernels are seen by the driver that launches them.
// libtorch is compiled with NDEBUG, and without it a RecordFunction would have a member more here than there.
#ifndef NDEBUG
#define NDEBUG
#endif
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
  // An operator has begun, within the one before; its inputs can be read now alone.
  void enter(const at::RecordFunction& f) {
    Open o;
    o.whole = is_whole(f.name());
    if (whole_ == 0 && f.operator_name().has_value()) read(f, o);  // else no operator, as a node of autograd
    whole_ += o.whole;
    open_.push_back(o);
  }

  void leave(const at::RecordFunction& f) {
    const Open o = open_.back();
    open_.pop_back();
    whole_ -= o.whole;
    if (whole_ > 0) return;
    const bool own = (o.whole || !o.worked) && works(f, f.name());
    if (own) add(f, o);
    if (!open_.empty()) open_.back().worked |= own || o.worked;
  }

  const std::map<std::string, Count>& counts() const { return counts_; }

 private:
  struct Open {
    bool whole = false, worked = false;  // an operator within it has
    bool out = false;                    // its last argument is written alone
    double read = 0, written = 0, flop = 0;
  };

  // Neither a view, nor an allocation, nor a composite that turned out to do nothing.
  static bool works(const at::RecordFunction& f, const std::string& name) {
    const auto& op = f.operator_name();
    if (!op.has_value() || name.starts_with("aten::empty") || name.starts_with("aten::new_empty") ||
        name == "aten::resize_" || name == "aten::_unsafe_view")
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

  static void read(const at::RecordFunction& f, Open& o) {
    const std::string name = f.name();
    const auto in = f.inputs();
    if (in.empty()) return;
    o.out = f.operator_name()->overload_name.ends_with("out");
    if (o.out) o.written = bytes_of(&in.back(), 1);
    o.read = bytes_of(in.data(), in.size() - (o.out ? 1 : 0));
    const bool adds = name.starts_with("aten::addmm");
    if (name == "aten::mm" || name == "aten::bmm" || adds) {
      const at::Tensor a = in[adds ? 1 : 0].toTensor(), b = in[adds ? 2 : 1].toTensor();
      o.flop = 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
    }
  }

  void add(const at::RecordFunction& f, const Open& o) {
    const std::string name = f.name();
    const auto results = f.outputs();
    const double written = o.out ? o.written : bytes_of(results.data(), results.size());
    const bool picks = name == "aten::index_select" || name == "aten::gather";  // reads as much as it writes
    Count& c = counts_[name];
    c.calls++;
    c.bytes += written + (picks ? written : o.read);
    c.flop += o.flop;
  }

  std::vector<Open> open_;
  int whole_ = 0;
  std::map<std::string, Count> counts_;
};

Counter* counter = nullptr;

std::unique_ptr<at::ObserverContext> entered(const at::RecordFunction& f) {
  counter->enter(f);
  return nullptr;
}
void left(const at::RecordFunction& f, at::ObserverContext*) { counter->leave(f); }

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
    o.grad = 1, o.checkpoint = checkpoint != 0 ? c->num_layers : 0;
    af::step(*m, *b, o);     // rounds the weights, makes the gradients, and asks libtorch which products it has
    m->grad_is_zero = true;  // as behind an optimizer's step
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
