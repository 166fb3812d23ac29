// A decoder-only transformer as the caller sees it: made, extended, filled, read.
#include <cmath>
#include <cstdlib>

#include "exchange.h"

namespace af {
namespace {

void check_config(const af_model_config& c) {
  auto positive = [](const char* name, int64_t v, int64_t most) {
    if (v < 1 || v > most) {
      throw InputError(std::string(name) + " is " + std::to_string(v) + ", allowed are 1 to " + std::to_string(most));
    }
  };
  positive("vocab_size", c.vocab_size, int64_t{1} << 24);
  positive("hidden_size", c.hidden_size, 1 << 17);
  positive("intermediate_size", c.intermediate_size, 1 << 19);
  positive("num_layers", c.num_layers, 1 << 12);
  positive("num_heads", c.num_heads, 1 << 12);
  positive("num_kv_heads", c.num_kv_heads, c.num_heads);
  positive("head_dim", c.head_dim, 1 << 12);
  if (c.num_heads % c.num_kv_heads != 0) throw InputError("num_heads is not a multiple of num_kv_heads");
  if (c.head_dim % 2 != 0) throw InputError("head_dim is odd, RoPE needs pairs");
  if (c.inv_freq == nullptr) throw InputError("inv_freq is missing, head_dim/2 RoPE frequencies are needed");
  if (!(c.rms_norm_eps > 0) || !std::isfinite(c.rms_norm_eps)) throw InputError("rms_norm_eps must be above 0");
  if (!(c.attention_factor > 0) || !std::isfinite(c.attention_factor)) {
    throw InputError("attention_factor must be above 0 (1 without YaRN)");
  }
  for (int64_t i = 0; i < c.head_dim / 2; i++) {
    if (!std::isfinite(c.inv_freq[i])) throw InputError("inv_freq[" + std::to_string(i) + "] is not finite");
  }
}

std::string shape_text(at::IntArrayRef shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); i++) s += (i ? " " : "") + std::to_string(shape[i]);
  return s + "]";
}

at::ScalarType scalar_type(int dtype) {
  switch (dtype) {
    case AF_F32:
      return at::kFloat;
    case AF_F16:
      return at::kHalf;
    case AF_BF16:
      return at::kBFloat16;
    default:
      throw InputError("parameter data has dtype " + std::to_string(dtype) + ", allowed are F32, F16 and BF16");
  }
}

void read_floats(const at::Tensor& t, const char* name, float* out, int64_t n) {
  if (n != t.numel()) {
    throw InputError(std::string("parameter ") + name + " has " + std::to_string(t.numel()) +
                     " elements, the buffer has " + std::to_string(n));
  }
  at::from_blob(out, t.sizes(), at::kFloat).copy_(t);
}

}  // namespace

}  // namespace af

at::Tensor af_model::scratch(at::IntArrayRef sizes, at::ScalarType type) const {
  return device.is_cpu() ? pool->take(sizes, type) : at::empty(sizes, at::TensorOptions(device).dtype(type));
}

at::Tensor af_model::activation(at::IntArrayRef sizes) const { return scratch(sizes, dtype); }

// Flash attention takes bfloat16 and heads of a multiple of 8 up to 256. Elsewhere, and with
// AGENTFLY_ATTENTION=segments, attention is one segment at a time.
void af_model::choose_path() {
  if (asked_path >= 0) {
    path = static_cast<af::Path>(asked_path);
    return;
  }
  const char* asked = std::getenv("AGENTFLY_ATTENTION");
  const bool refused = asked != nullptr && std::string(asked) == "segments";
  const bool flash = !refused && dtype == at::kBFloat16 && config.head_dim % 8 == 0 && config.head_dim <= 256;
  path = device.is_cpu() ? af::Path::kKernels : flash ? af::Path::kFlash : af::Path::kSegments;
}

at::Tensor af_model::rounded_flat() const {
  const bool there = dtype != at::kFloat && !spread && rounded_.trained == trained && rounded_.flat.defined() &&
                     rounded_.flat.scalar_type() == dtype;
  return there ? rounded_.flat : at::Tensor();
}

const af::Parameters& af_model::weights() {
  if (dtype == at::kFloat) return *this;
  const bool fresh = !spread && (rounded_.trained != trained || rounded_.flat.scalar_type() != dtype);
  if (fresh) rounded_ = af::lay_out(layout, flat.to(dtype), frozen.defined() ? frozen.to(dtype) : frozen);
  if (!fresh && !spread && rounded_version_ != version) rounded_.flat.copy_(flat);
  if (!fresh && frozen.defined() && rounded_base_version_ != base_version) rounded_.frozen.copy_(frozen);
  rounded_version_ = version;
  rounded_base_version_ = base_version;
  return rounded_;
}

void af_model::lay_over(at::Tensor buffer) {
  static_cast<af::Parameters&>(*this) = af::lay_out(layout, std::move(buffer), frozen);
}

void af_model::spread_out() {
  spread = false;
  weights();
  spread = true;
}

namespace af {
namespace {

// Lays the parameters out anew, with the values that they had; new ones are zero.
void extend(af_model& m, const Layout& layout) {
  if (m.spread)
    throw InputError("the parameters are spread over the ranks already; add it before the optimizer is made");
  if (m.exchange) m.exchange->settle();
  m.exchange = nullptr;  // it knows the old parts
  Parameters old = m;
  const bool freezes = layout.rank > 0 && !old.frozen.defined();
  Parameters next = lay_out(layout, new_flat(layout_size(layout), m.device), freezes ? old.flat : old.frozen);
  for (const auto& name : next.trained) {
    const auto found = old.by_name.find(name);
    if (found != old.by_name.end()) next.by_name.at(name).copy_(found->second);
  }
  static_cast<Parameters&>(m) = std::move(next);
  m.layout = layout;
  m.grad = {};
  m.version++;
  m.base_version++;
}

void add_adapter(af_model& m, const af_adapter_config& c) {
  const int64_t most = std::min(m.config.hidden_size, m.config.intermediate_size);
  if (m.layout.rank > 0) throw InputError("the model has an adapter already");
  if (c.rank < 1 || c.rank > most)
    throw InputError("adapter rank is " + std::to_string(c.rank) + ", allowed are 1 to " + std::to_string(most));
  if (!(c.alpha > 0) || !std::isfinite(c.alpha)) throw InputError("adapter alpha must be above 0");
  if (c.targets < 1 || c.targets > AF_TARGET_ALL)
    throw InputError("adapter targets: at least one projection is needed");
  Layout layout = m.layout;
  layout.rank = c.rank;
  layout.targets = c.targets;
  extend(m, layout);
  m.adapter_scale = c.alpha / static_cast<double>(c.rank);
  m.adapter_on = true;
  for (const auto& name : m.trained) {
    if (!name.ends_with("lora_A.weight")) continue;  // B is zero: the model starts as the base
    const at::Tensor& t = m.by_name.at(name);
    at::Tensor values = at::empty(t.sizes(), at::kFloat);
    // kaiming_uniform_(a = sqrt(5)) as torch.nn.Linear and PEFT: uniform within 1 / sqrt(in)
    fill_uniform(values.mutable_data_ptr<float>(), values.numel(), c.seed, name, 1 / std::sqrt(t.size(1)));
    t.copy_(values);
  }
}

}  // namespace
}  // namespace af

af::Parameters af_model::zeros() const { return af::lay_out(layout, af::new_flat(flat.numel(), device), {}); }

const at::Tensor& af_model::find(const af::Parameters& which, const char* name) const {
  auto it = which.by_name.find(name);
  if (it != which.by_name.end()) return it->second;
  if (config.tie_word_embeddings && std::string("lm_head.weight") == name) {
    throw af::InputError("parameter lm_head.weight: the model ties it to model.embed_tokens.weight, use that name");
  }
  throw af::InputError(std::string("the model has no parameter ") + name);
}

extern "C" {

af_error* af_model_new(const af_model_config* c, int device, af_model** out) {
  return af::guard([&] {
    af::check_config(*c);
    af::check_device(device);
    auto m = std::make_shared<af_model>();
    m->config = *c;
    m->inv_freq_storage.assign(c->inv_freq, c->inv_freq + c->head_dim / 2);
    m->config.inv_freq = m->inv_freq_storage.data();
    if (device >= 0) m->device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    m->choose_path();
    m->layout.config = &m->config;
    static_cast<af::Parameters&>(*m) = af::lay_out(m->layout, af::new_flat(af::layout_size(m->layout), m->device), {});
    m->self = m;
    af::live++;
    *out = m.get();
  });
}

void af_model_free(af_model* m) {
  if (m == nullptr) return;
  af::live--;
  auto last = std::move(m->self);  // freed here unless a graph, an optimizer or a cache still holds it
}

af_error* af_model_add_value_head(af_model* m) {
  return af::guard([&] {
    if (m->layout.value_head) throw af::InputError("the model has a value head already");
    af::Layout layout = m->layout;
    layout.value_head = true;
    af::extend(*m, layout);
  });
}

af_error* af_model_add_adapter(af_model* m, const af_adapter_config* c) {
  return af::guard([&] { af::add_adapter(*m, *c); });
}

void af_model_set_adapter(af_model* m, int on) { m->adapter_on = on != 0; }

static const std::vector<std::string>& names_of(const af_model* m, int which) {
  return which == AF_TRAINED ? m->trained : m->names;
}

int64_t af_model_num_parameters(const af_model* m, int which) {
  return static_cast<int64_t>(names_of(m, which).size());
}

const char* af_model_parameter_name(const af_model* m, int which, int64_t i) {
  const auto& names = names_of(m, which);
  return i < 0 || i >= static_cast<int64_t>(names.size()) ? "" : names[i].c_str();
}

af_error* af_model_parameter_shape(const af_model* m, const char* name, int* ndim, int64_t* shape) {
  return af::guard([&] {
    const at::Tensor& t = m->find(*m, name);
    *ndim = static_cast<int>(t.dim());
    for (int64_t d = 0; d < t.dim(); d++) shape[d] = t.size(d);
  });
}

af_error* af_model_set_parameter(af_model* m, const char* name, int dtype, const void* data, const int64_t* shape,
                                 int ndim) {
  return af::guard([&] {
    af::settle(*m);
    const at::Tensor& t = m->find(*m, name);
    at::IntArrayRef given(shape, static_cast<size_t>(ndim));
    if (t.sizes() != given) {
      throw af::InputError(std::string("parameter ") + name + " has shape " + af::shape_text(t.sizes()) +
                           ", the data has " + af::shape_text(given));
    }
    t.copy_(at::from_blob(const_cast<void*>(data), given, at::TensorOptions(af::scalar_type(dtype))));
  });
}

af_error* af_model_get_parameter(af_model* m, const char* name, float* out, int64_t n) {
  return af::guard([&] {
    af::settle(*m);
    af::read_floats(m->find(*m, name), name, out, n);
  });
}

af_error* af_model_get_merged(af_model* m, const char* name, float* out, int64_t n) {
  return af::guard([&] {
    af::settle(*m);
    af::read_floats(af::merged(*m, name), name, out, n);
  });
}

af_error* af_model_get_gradient(af_model* m, const char* name, float* out, int64_t n) {
  return af::guard([&] {
    if (m->held_gradient.defined())
      throw af::InputError("the gradient lies in host memory: restore the optimizer first");
    const at::Tensor& value = m->find(*m, name);
    const auto found = m->grad.by_name.find(name);  // none before a backward, none of what is frozen
    af::read_floats(found != m->grad.by_name.end() ? found->second : at::zeros(value.sizes()), name, out, n);
  });
}

af_error* af_model_init(af_model* m, uint64_t seed, double std) {
  return af::guard([&] {
    if (!(std >= 0) || !std::isfinite(std)) throw af::InputError("std must be finite and at least 0");
    af::settle(*m);
    for (const auto& name : m->names) {
      const at::Tensor& t = m->by_name.at(name);
      if (t.dim() == 1) {
        t.fill_(name.ends_with("norm.weight") ? 1 : 0);
        continue;
      }
      at::Tensor values = at::empty(t.sizes(), at::kFloat);
      af::fill_normal(values.mutable_data_ptr<float>(), values.numel(), seed, name, std);
      t.copy_(values);
    }
    af_model_changed(m);
  });
}

uint64_t af_model_version(const af_model* m) { return m->version + m->base_version; }

void af_model_changed(af_model* m) {
  m->version++;
  m->base_version++;
}

af_error* af_model_set_dtype(af_model* m, int dtype) {
  return af::guard([&] {
    if (dtype != AF_F32 && dtype != AF_BF16)
      throw af::InputError("a model computes in F32 or BF16, not in dtype " + std::to_string(dtype));
    if (m->spread && af::scalar_type(dtype) != m->dtype)
      throw af::InputError(
          "the parameters are spread over the ranks already; set the dtype before the optimizer is made");
    m->dtype = af::scalar_type(dtype);
    m->choose_path();
    m->version++;  // what was computed in the other type has no backward any more
  });
}

af_error* af_model_set_path(af_model* m, int path) {
  return af::guard([&] {
    if (path < AF_PATH_DEFAULT || path > AF_PATH_FLASH)
      throw af::InputError("path is " + std::to_string(path) + ", allowed are " + std::to_string(AF_PATH_DEFAULT) +
                           " to " + std::to_string(AF_PATH_FLASH));
    if (path == AF_PATH_KERNELS && !m->device.is_cpu()) throw af::InputError("the kernels of the CPU need a CPU model");
    m->asked_path = path;
    m->choose_path();
  });
}

}  // extern "C"
