// Where the parameters lie in their flat buffers, and their names.
#include "internal.h"

namespace af {
namespace {

constexpr int64_t kAlign = 16;  // floats: every parameter starts on a cache line

// Cuts views out of one flat buffer, in order, and lists their names. Without a buffer it only measures.
class Cutter {
 public:
  Cutter(at::Tensor buffer, std::vector<std::string>& names, std::unordered_map<std::string, at::Tensor>& by_name)
      : buffer_(std::move(buffer)), names_(names), by_name_(by_name) {}
  int64_t size() const { return offset_; }

  at::Tensor take(const std::string& name, std::vector<int64_t> shape) {
    at::Tensor view = cut(offset_, shape);
    offset_ += numel(shape);
    if (view.defined()) {
      names_.push_back(name);
      by_name_.emplace(name, view);
    }
    return view;
  }
  int64_t align() { return offset_ = (offset_ + kAlign - 1) / kAlign * kAlign; }
  // What was taken since the last part is one.
  void end_part() {
    const int64_t begin = parts_.empty() ? 0 : parts_.back().begin + parts_.back().length;
    parts_.push_back({begin, align() - begin});
  }
  const std::vector<Range>& parts() const { return parts_; }
  at::Tensor cut(int64_t offset, const std::vector<int64_t>& shape) const {
    if (!buffer_.defined()) return {};
    return buffer_.narrow(0, offset, numel(shape)).view(shape);
  }

 private:
  static int64_t numel(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  at::Tensor buffer_;
  std::vector<std::string>& names_;
  std::unordered_map<std::string, at::Tensor>& by_name_;
  std::vector<Range> parts_;
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
  cut.end_part();
  for (int64_t i = 0; i < c.num_layers; i++) {
    p.layers.push_back(cut_layer(cut, c, "model.layers." + std::to_string(i) + "."));
    cut.end_part();
  }
  cut.align();
  p.norm_D = cut.take("model.norm.weight", {c.hidden_size});
  cut.align();
  p.head_VD = c.tie_word_embeddings ? p.embed_VD : cut.take("lm_head.weight", {c.vocab_size, c.hidden_size});
  cut.end_part();
}

struct Projection {
  const char* name;
  int64_t rows;
  unsigned target;
};
// The adapters of one product that joins the projections.
LowRank cut_low_rank(Cutter& cut, const Layout& layout, const std::string& prefix, int64_t in,
                     std::initializer_list<Projection> projections) {
  const int64_t R = layout.rank;
  LowRank l;
  int64_t column = 0, parts = 0;
  const int64_t start = cut.align();
  for (const Projection& p : projections) {
    if ((layout.targets & p.target) == 0) continue;
    cut.take(prefix + p.name + ".lora_A.weight", {R, in});
    parts++;
  }
  if (parts > 0) l.A = cut.cut(start, {parts * R, in});
  for (const Projection& p : projections) {
    if ((layout.targets & p.target) != 0) {
      cut.align();
      l.parts.push_back({column, p.rows, cut.take(prefix + p.name + ".lora_B.weight", {p.rows, R})});
    }
    column += p.rows;
  }
  return l;
}

LayerAdapters cut_adapters(Cutter& cut, const Layout& layout, int64_t index) {
  const af_model_config& c = *layout.config;
  const int64_t D = c.hidden_size, F = c.intermediate_size, HE = c.num_heads * c.head_dim,
                KE = c.num_kv_heads * c.head_dim;
  const std::string prefix = "base_model.model.model.layers." + std::to_string(index) + ".";  // as PEFT writes it
  LayerAdapters a;
  a.qkv = cut_low_rank(cut, layout, prefix + "self_attn.", D,
                       {{"q_proj", HE, AF_TARGET_Q}, {"k_proj", KE, AF_TARGET_K}, {"v_proj", KE, AF_TARGET_V}});
  a.o = cut_low_rank(cut, layout, prefix + "self_attn.", HE, {{"o_proj", D, AF_TARGET_O}});
  a.gate_up =
      cut_low_rank(cut, layout, prefix + "mlp.", D, {{"gate_proj", F, AF_TARGET_GATE}, {"up_proj", F, AF_TARGET_UP}});
  a.down = cut_low_rank(cut, layout, prefix + "mlp.", F, {{"down_proj", D, AF_TARGET_DOWN}});
  return a;
}

// Returns how many floats flat needs.
int64_t cut_all(Parameters& p, const Layout& layout) {
  Cutter cut(p.flat, p.trained, p.by_name);
  if (layout.rank == 0) {
    cut_base(cut, p, *layout.config);
    p.names = p.trained;
  } else {
    Cutter base(p.frozen, p.names, p.by_name);
    cut_base(base, p, *layout.config);
    cut.end_part();  // no embeddings
    for (int64_t i = 0; i < layout.config->num_layers; i++) {
      p.adapters.push_back(cut_adapters(cut, layout, i));
      cut.end_part();
    }
    cut.end_part();  // no norm, no head
  }
  if (layout.value_head) {
    p.value_weight_1D = cut.take("value_head.weight", {1, layout.config->hidden_size});
    cut.align();
    p.value_bias_1 = cut.take("value_head.bias", {1});
  }
  cut.end_part();
  p.parts = cut.parts();
  return cut.align();
}

}  // namespace

int64_t layout_size(const Layout& layout) {
  Parameters p;
  return cut_all(p, layout);
}

at::Tensor new_flat(int64_t size, at::Device device) {
  at::Tensor flat = at::empty({size}, at::TensorOptions(device).dtype(at::kFloat));
  if (device.is_cpu()) advise_huge(flat.mutable_data_ptr<float>(), size * 4);
  return flat.zero_();
}

Parameters lay_out(const Layout& layout, at::Tensor flat, at::Tensor frozen) {
  Parameters p;
  p.flat = std::move(flat);
  p.frozen = std::move(frozen);
  cut_all(p, layout);
  return p;
}

}  // namespace af
