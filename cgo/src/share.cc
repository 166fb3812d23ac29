#include "share.h"

namespace af {
namespace {

// Of what dimension 0 or 1 counts those of the range; undefined stays undefined.
at::Tensor rows_of(const at::Tensor& t, const Range& r) { return t.defined() ? t.narrow(0, r.begin, r.length) : t; }
at::Tensor columns_of(const at::Tensor& t, const Range& r) { return t.defined() ? t.narrow(1, r.begin, r.length) : t; }

// A projection of several that are joined, and the rows of it that a process computes.
struct Cut {
  int64_t column;  // of the joined output, where the projection begins
  Range rows;
  at::Tensor weight, bias;
};

Projections cut_rows(std::initializer_list<Cut> cuts, const LowRank& a) {
  Projections p;
  p.adapter.A = a.A;
  int64_t column = 0;
  for (const Cut& c : cuts) {
    p.parts.push_back({c.rows.length, rows_of(c.weight, c.rows), rows_of(c.bias, c.rows)});
    for (const LowRank::Part& part : a.parts) {
      if (part.column == c.column) p.adapter.parts.push_back({column, c.rows.length, rows_of(part.B, c.rows)});
    }
    column += c.rows.length;
  }
  return p;
}

Projections cut_columns(int64_t rows, const Range& columns, const at::Tensor& weight, const at::Tensor& bias,
                        const LowRank& a) {
  return {{{rows, columns_of(weight, columns), bias}}, {columns_of(a.A, columns), a.parts}};
}

std::string times(int64_t n, const char* what) { return std::to_string(n) + " " + what; }

}  // namespace

Share share_of(const af_model_config& c, int64_t rank, int64_t world) {
  const int64_t H = c.num_heads, K = c.num_kv_heads, F = c.intermediate_size;
  if (world == 1) return {{0, H}, {0, K}, {0, F}};
  const std::string ranks = std::to_string(world) + " ranks cannot share ";
  if (H % world != 0) throw InputError(ranks + times(H, "query heads equally"));
  if (F % world != 0) throw InputError(ranks + times(F, "columns of the MLP equally"));
  if (K % world != 0 && world % K != 0)
    throw InputError(ranks + times(K, "key/value heads: one of the numbers must divide the other"));
  const int64_t heads = H / world, group = H / K;  // queries of a key/value head
  return {{rank * heads, heads},
          {rank * heads / group, std::max<int64_t>(1, heads / group)},
          {rank * (F / world), F / world},
          false,
          rank == 0};
}

LayerShare layer_share(const af_model_config& c, const Share& s, const Layer& l, const LayerAdapters& a) {
  const int64_t D = c.hidden_size, F = c.intermediate_size, E = c.head_dim, HE = c.num_heads * E,
                KE = c.num_kv_heads * E;
  LayerShare out;
  out.input_norm_D = l.input_norm_D, out.post_norm_D = l.post_norm_D;
  out.q_norm_E = l.q_norm_E, out.k_norm_E = l.k_norm_E;
  if (s.whole) {
    out.qkv = {{{HE + 2 * KE, l.qkv_weight, l.qkv_bias}}, a.qkv};
    out.o = {{{D, l.o_weight_DHE, l.o_bias}}, a.o};
    out.gate_up = {{{2 * F, l.gate_up_weight, l.gate_up_bias}}, a.gate_up};
    out.down = {{{D, l.down_weight_DF, l.down_bias}}, a.down};
    return out;
  }
  const Range q{s.heads.begin * E, s.heads.length * E}, k{s.kv_heads.begin * E, s.kv_heads.length * E};
  out.qkv = cut_rows(
      {{0, q, l.q_weight_HED, l.q_bias}, {HE, k, l.k_weight_KED, l.k_bias}, {HE + KE, k, l.v_weight_KED, l.v_bias}},
      a.qkv);
  out.gate_up =
      cut_rows({{0, s.columns, l.gate_weight_FD, l.gate_bias}, {F, s.columns, l.up_weight_FD, l.up_bias}}, a.gate_up);
  const at::Tensor none;
  out.o = cut_columns(D, q, l.o_weight_DHE, s.first ? l.o_bias : none, a.o);
  out.down = cut_columns(D, s.columns, l.down_weight_DF, s.first ? l.down_bias : none, a.down);
  return out;
}

}  // namespace af
