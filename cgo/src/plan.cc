// Checks a packed batch and prepares what every layer reads.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "train.h"

namespace af {
namespace {

std::string at_index(const char* what, int64_t i, int64_t value) {
  return std::string("batch: ") + what + "[" + std::to_string(i) + "] is " + std::to_string(value);
}

std::vector<Segment> make_segments(const af_batch& b) {
  std::vector<Segment> segments;
  int64_t next = 0;
  for (int64_t i = 0; i < b.num_segments; i++) {
    const int64_t start = b.segment_start[i], length = b.segment_length[i], parent = b.segment_parent[i];
    if (start != next)
      throw InputError(at_index("segment_start", i, start) + ", the segments before it end at " + std::to_string(next));
    if (length < 1 || length > b.num_tokens - start)
      throw InputError(at_index("segment_length", i, length) + ", allowed are 1 to " +
                       std::to_string(b.num_tokens - start));
    if (parent < -1 || parent >= i)
      throw InputError(at_index("segment_parent", i, parent) + ", allowed are -1 and earlier segments");
    next = start + length;
    Segment s{start, length, {}, 0, start};
    if (parent >= 0) {
      const Segment& p = segments[parent];
      s.ancestors = p.ancestors;
      s.before = p.before + p.length;
      add_run(s.ancestors, {p.start, p.length});
    }
    segments.push_back(std::move(s));
  }
  if (next != b.num_tokens)
    throw InputError("batch: the segments cover " + std::to_string(next) + " of " + std::to_string(b.num_tokens) +
                     " tokens");
  return segments;
}

std::vector<int64_t> checked(const char* what, const int32_t* values, int64_t n, int64_t limit) {
  std::vector<int64_t> out(values, values + n);
  for (int64_t i = 0; i < n; i++) {
    if (out[i] < 0 || out[i] >= limit)
      throw InputError(at_index(what, i, out[i]) + ", allowed are 0 to " + std::to_string(limit - 1));
  }
  return out;
}

// The values at some runs.
std::vector<int64_t> picked(const std::vector<int64_t>& values, const std::vector<Range>& runs) {
  std::vector<int64_t> out;
  for (const Range& r : runs) out.insert(out.end(), values.begin() + r.begin, values.begin() + r.begin + r.length);
  return out;
}

// What runs of tokens hold of the segments, in their order. What stands before a piece in its segment is its ancestor.
std::vector<Segment> pieces(const std::vector<Segment>& segments, const std::vector<Range>& runs) {
  std::vector<Segment> out;
  int64_t row = 0;
  for (const Range& r : runs) {
    for (const Segment& s : segments) {
      const int64_t start = std::max(s.start, r.begin), end = std::min(s.start + s.length, r.begin + r.length);
      if (start >= end) continue;
      Segment piece{start, end - start, s.ancestors, s.before + start - s.start, row};
      if (start > s.start) add_run(piece.ancestors, {s.start, start - s.start});
      row += piece.length;
      out.push_back(std::move(piece));
    }
  }
  return out;
}

// Leaves this rank its own tokens and rows of those that several ranks compute.
std::shared_ptr<const Dealt> deal(const af_model& m, Plan& p, const std::shared_ptr<Group>& group) {
  const auto dealt = std::make_shared<Dealt>(m, group, p.O, p.row_token);
  std::vector<int64_t> row(p.O);  // of a token among the own ones
  p.O = 0;
  for (const Range& r : dealt->own()) {
    for (int64_t t = r.begin; t < r.begin + r.length; t++) row[t] = p.O++;
  }
  p.tokens = picked(p.tokens, dealt->own());
  std::vector<int64_t> row_token, row_target;
  for (const int64_t i : dealt->rows()) {
    row_token.push_back(row[p.row_token[i]]);
    row_target.push_back(p.row_target[i]);
  }
  if (row_token.empty()) row_token = row_target = {0};
  p.row_token = std::move(row_token);
  p.row_target = std::move(row_target);
  p.N = static_cast<int64_t>(p.row_token.size());
  return dealt;
}

}  // namespace

at::Tensor to_device(const af_model& m, const at::Tensor& x) {
  if (!m.device.is_cuda()) return x.to(m.device, /*non_blocking=*/false, /*copy=*/true);
  // Not by libtorch's copy, which shares more than 32,768 numbers among threads: after the device's work before they
  // sleep, and come too late by milliseconds.
  const at::Tensor pinned = at::empty(x.sizes(), x.options().pinned_memory(true));
  const at::Tensor from = x.contiguous();
  std::memcpy(pinned.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  return pinned.to(m.device, /*non_blocking=*/true);
}

int64_t Plan::keys() const { return context ? context->tokens() : T; }

at::Tensor to_device(const af_model& m, const std::vector<int64_t>& values) {
  return to_device(
      m, at::from_blob(const_cast<int64_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kLong));
}

at::Tensor to_device(const af_model& m, const std::vector<int32_t>& values) {
  return to_device(m,
                   at::from_blob(const_cast<int32_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kInt));
}

void rotate(const af_model& m, Plan& p, const std::vector<int64_t>& positions) {
  const int64_t half = m.config.head_dim / 2;
  if (!m.device.is_cpu()) {
    const at::Tensor frequency = at::from_blob(const_cast<float*>(m.config.inv_freq), {half}, at::kFloat);
    const at::Tensor angle = to_device(m, positions).to(at::kFloat).unsqueeze(1) * to_device(m, frequency);
    at::Tensor cos = at::cos(angle).mul_(m.config.attention_factor),
               sin = at::sin(angle).mul_(m.config.attention_factor);
    p.cos_T = std::move(cos), p.sin_T = std::move(sin);  // both or, where memory is short, none
    return;
  }
  // Tokens of many sequences have few positions: then each is computed once.
  const int64_t count = *std::max_element(positions.begin(), positions.end()) + 1;
  const bool shared = count < p.T;
  const int64_t rows = shared ? count : p.T;
  const auto position = [&](int64_t r) { return static_cast<float>(shared ? r : positions[static_cast<size_t>(r)]); };
  at::Tensor cos, sin;  // [rows, E/2]
  // As transformers: angle = position * inv_freq in float32, then cosine and sine times the attention factor.
  if (as_engine(m)) {  // libtorch's differ from the engine's in the last bit
    cos = at::empty({rows, half}, at::kFloat), sin = at::empty({rows, half}, at::kFloat);
    float *c = cos.mutable_data_ptr<float>(), *s = sin.mutable_data_ptr<float>();
    for (int64_t r = 0; r < rows; r++) {
      kernel::rotation(c + r * half, s + r * half, position(r), m.config.inv_freq, half,
                       static_cast<float>(m.config.attention_factor));
    }
  } else {
    const at::Tensor angle = at::empty({rows, half}, at::kFloat);
    float* a = angle.mutable_data_ptr<float>();
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t i = 0; i < half; i++) a[r * half + i] = position(r) * m.config.inv_freq[i];
    }
    cos = at::cos(angle).mul_(m.config.attention_factor), sin = at::sin(angle).mul_(m.config.attention_factor);
  }
  if (shared) {
    const at::Tensor index = to_device(m, positions);
    cos = cos.index_select(0, index), sin = sin.index_select(0, index);
  }
  p.cos_T = cos, p.sin_T = sin;
}

void check_sizes(const af_batch& b) {
  if (b.num_tokens < 1 || b.num_rows < 1) throw InputError("batch: it needs at least one token and one row");
}

Plan make_plan(const af_model& m, const af_batch& b, const Neighbours& ranks) {
  check_sizes(b);
  if (!(b.temperature > 0) || !std::isfinite(b.temperature)) throw InputError("batch: temperature must be above 0");
  Plan p;
  p.share = ranks.tensor ? share_of(m.config, ranks.tensor->rank(), ranks.tensor->world()) : share_of(m.config, 0, 1);
  p.T = p.O = b.num_tokens;
  p.N = b.num_rows;
  p.logit_scale = 1 / b.temperature;
  p.segments = make_segments(b);
  p.tokens = checked("tokens", b.tokens, p.T, m.config.vocab_size);
  p.row_token = checked("row_token", b.row_token, p.N, p.T);
  p.row_target = checked("row_target", b.row_target, p.N, m.config.vocab_size);
  std::vector<int64_t> positions(b.positions, b.positions + p.T);
  for (int64_t t = 0; t < p.T; t++) {
    if (positions[t] < 0) throw InputError(at_index("positions", t, positions[t]) + ", it must be at least 0");
  }
  if (ranks.context) {
    p.context = deal(m, p, ranks.context);
    p.segments = pieces(p.segments, p.context->own());
    positions = picked(positions, p.context->own());
    p.T = p.O;
  }
  if (ranks.tensor) p.tensor = deal(m, p, ranks.tensor);
  p.tokens_O = to_device(m, p.tokens);
  p.row_token_N = to_device(m, p.row_token);
  p.row_target_N = to_device(m, p.row_target);

  rotate(m, p, positions);
  if (use_varlen(m)) p.varlen = make_varlen(m, p);
  return p;
}

}  // namespace af
