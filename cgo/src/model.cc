// Parameters of a decoder-only transformer: their layout in one flat buffer, names, files in and out, initial values.
#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>

#include "internal.h"

namespace af {
namespace {

constexpr int64_t kAlign = 16;  // floats: every parameter starts on a cache line

// Cuts views out of one flat buffer, in order. The first pass has no buffer and only measures.
class Cutter {
 public:
  Cutter(Parameters& p, bool measure) : p_(p), measure_(measure) {}
  int64_t size() const { return offset_; }

  at::Tensor take(const std::string& name, std::vector<int64_t> shape) {
    at::Tensor view = cut(offset_, shape);
    offset_ += numel(shape);
    if (!measure_) {
      p_.trained.push_back(name);
      p_.by_name.emplace(name, view);
    }
    return view;
  }
  int64_t align() { return offset_ = (offset_ + kAlign - 1) / kAlign * kAlign; }
  at::Tensor cut(int64_t offset, const std::vector<int64_t>& shape) const {
    if (measure_) return {};
    return p_.flat.narrow(0, offset, numel(shape)).view(shape);
  }

 private:
  static int64_t numel(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  Parameters& p_;
  bool measure_;
  int64_t offset_ = 0;
};

Layer cut_layer(Cutter& cut, const af_model_config& c, const std::string& prefix) {
  const int64_t D = c.hidden_size, F = c.intermediate_size, E = c.head_dim;
  const int64_t HE = c.num_heads * E, KE = c.num_kv_heads * E;
  Layer l;
  auto take = [&](const char* name, std::vector<int64_t> shape) { return cut.take(prefix + name, std::move(shape)); };
  cut.align();
  l.input_norm_D = take("input_layernorm.weight", {D});
  int64_t start = cut.align();
  l.q_weight_HED = take("self_attn.q_proj.weight", {HE, D});
  l.k_weight_KED = take("self_attn.k_proj.weight", {KE, D});
  l.v_weight_KED = take("self_attn.v_proj.weight", {KE, D});
  l.qkv_weight = cut.cut(start, {HE + 2 * KE, D});
  if (c.qkv_bias) {
    start = cut.align();
    l.q_bias = take("self_attn.q_proj.bias", {HE});
    l.k_bias = take("self_attn.k_proj.bias", {KE});
    l.v_bias = take("self_attn.v_proj.bias", {KE});
    l.qkv_bias = cut.cut(start, {HE + 2 * KE});
  }
  cut.align();
  l.o_weight_DHE = take("self_attn.o_proj.weight", {D, HE});
  if (c.o_bias) l.o_bias = take("self_attn.o_proj.bias", {D});
  if (c.qk_norm) {
    l.q_norm_E = take("self_attn.q_norm.weight", {E});
    l.k_norm_E = take("self_attn.k_norm.weight", {E});
  }
  cut.align();
  l.post_norm_D = take("post_attention_layernorm.weight", {D});
  start = cut.align();
  l.gate_weight_FD = take("mlp.gate_proj.weight", {F, D});
  l.up_weight_FD = take("mlp.up_proj.weight", {F, D});
  l.gate_up_weight = cut.cut(start, {2 * F, D});
  if (c.mlp_bias) {
    start = cut.align();
    l.gate_bias = take("mlp.gate_proj.bias", {F});
    l.up_bias = take("mlp.up_proj.bias", {F});
    l.gate_up_bias = cut.cut(start, {2 * F});
  }
  cut.align();
  l.down_weight_DF = take("mlp.down_proj.weight", {D, F});
  if (c.mlp_bias) l.down_bias = take("mlp.down_proj.bias", {D});
  return l;
}

void cut_base(Cutter& cut, Parameters& p, const af_model_config& c) {
  p.embed_VD = cut.take("model.embed_tokens.weight", {c.vocab_size, c.hidden_size});
  for (int64_t i = 0; i < c.num_layers; i++) {
    p.layers.push_back(cut_layer(cut, c, "model.layers." + std::to_string(i) + "."));
  }
  cut.align();
  p.norm_D = cut.take("model.norm.weight", {c.hidden_size});
  cut.align();
  p.head_VD = c.tie_word_embeddings ? p.embed_VD : cut.take("lm_head.weight", {c.vocab_size, c.hidden_size});
  cut.align();
  p.names = p.trained;
}

int64_t cut_all(Parameters& p, const Layout& layout, bool measure) {
  Cutter cut(p, measure);
  cut_base(cut, p, *layout.config);
  if (layout.value_head) {
    p.value_weight_1D = cut.take("value_head.weight", {1, layout.config->hidden_size});
    cut.align();
    p.value_bias_1 = cut.take("value_head.bias", {1});
  }
  return cut.align();
}

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

// splitmix64: a counter in, 64 well-mixed bits out (Steele et al., OOPSLA 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// n values ~ N(0, std) by Box-Muller; value i depends on (seed, name, i) alone.
void fill_normal(float* out, int64_t n, uint64_t seed, const std::string& name, double std) {
  uint64_t key = seed;
  for (unsigned char ch : name) key = mix(key ^ ch);
  at::parallel_for(0, (n + 1) / 2, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const uint64_t a = mix(key ^ mix(2 * i)), b = mix(key ^ mix(2 * i + 1));
      const double u = (static_cast<double>(a >> 11) + 1) * 0x1p-53, v = static_cast<double>(b >> 11) * 0x1p-53;
      const double r = std * std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
      out[2 * i] = static_cast<float>(r * std::cos(angle));
      if (2 * i + 1 < n) out[2 * i + 1] = static_cast<float>(r * std::sin(angle));
    }
  });
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

int64_t layout_size(const Layout& layout) {
  Parameters p;
  return cut_all(p, layout, true);
}

at::Tensor new_flat(int64_t size, at::Device device) {
  at::Tensor flat = at::empty({size}, at::TensorOptions(device).dtype(at::kFloat));
  if (device.is_cpu()) advise_huge(flat.mutable_data_ptr<float>(), size * 4);
  return flat.zero_();
}

Parameters lay_out(const Layout& layout, at::Tensor flat) {
  Parameters p;
  p.flat = std::move(flat);
  cut_all(p, layout, false);
  return p;
}

}  // namespace af

at::Tensor af_model::scratch(at::IntArrayRef sizes) const {
  return device.is_cpu() ? pool->take(sizes) : at::empty(sizes, flat.options());
}

af::Parameters af_model::zeros() const { return af::lay_out(layout, af::new_flat(flat.numel(), device)); }

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
    if (device >= 0 && device >= af_cuda_devices()) {
      throw af::InputError("device cuda:" + std::to_string(device) + " is not there: libtorch sees " +
                           std::to_string(af_cuda_devices()) + " CUDA devices");
    }
    auto m = std::make_shared<af_model>();
    m->config = *c;
    m->inv_freq_storage.assign(c->inv_freq, c->inv_freq + c->head_dim / 2);
    m->config.inv_freq = m->inv_freq_storage.data();
    if (device >= 0) m->device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    m->layout.config = &m->config;
    static_cast<af::Parameters&>(*m) = af::lay_out(m->layout, af::new_flat(af::layout_size(m->layout), m->device));
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
    const at::Tensor flat = af::new_flat(af::layout_size(layout), m->device);
    flat.narrow(0, 0, m->flat.numel()).copy_(m->flat);
    static_cast<af::Parameters&>(*m) = af::lay_out(layout, flat);
    m->layout = layout;
    m->grad = {};
    m->version++;
  });
}

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
  return af::guard([&] { af::read_floats(m->find(*m, name), name, out, n); });
}

af_error* af_model_get_gradient(af_model* m, const char* name, float* out, int64_t n) {
  return af::guard([&] {
    const at::Tensor& value = m->find(*m, name);
    af::read_floats(m->grad.flat.defined() ? m->find(m->grad, name) : at::zeros_like(value), name, out, n);
  });
}

af_error* af_model_init(af_model* m, uint64_t seed, double std) {
  return af::guard([&] {
    if (!(std >= 0) || !std::isfinite(std)) throw af::InputError("std must be finite and at least 0");
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
    m->version++;
  });
}

void af_model_changed(af_model* m) { m->version++; }

void af_model_generic(af_model* m, int on) { m->generic = on != 0; }

}  // extern "C"
