#include "launch.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "../internal.h"
#include "../paged.h"
#include "driver.h"
#include "image.h"
#include "scripted.h"

namespace af::cuda {
namespace {

constexpr unsigned kRowThreads = 256, kHeadThreads = 512, kStepThreads = 256;  // as rows.h, head.h and optimizer.h
constexpr int64_t kSumColumns = 32;                                            // as rows.h
constexpr int64_t kStepNumbers = 8;                                            // of a thread of AdamW
constexpr unsigned kPagedThreads = 128;                                        // as paged.h
constexpr int64_t kPagedHeads = 4, kSpan = 128, kMostPagedHead = 256;          // and the widest head that a warp holds
constexpr int64_t kMostParts = 1 << 24;  // numbers of the parts of rows that are joined: trainer/memory counts them
constexpr int64_t kVectorBytes = 16;
constexpr int64_t kMostRows = INT32_MAX, kMostColumns = 1 << 28, kMostGridY = 65535;
constexpr int64_t kParts = 1024;  // most shares of a norm's dw, whatever the device

// Kernels that exist in float32 and bfloat16, and those that do not.
enum Name {
  kRmsNorm,
  kRmsNormBackward,
  kRope,
  kSwiglu,
  kSwigluBackward,
  kHeadBackward,
  kAttendPaged,
  kJoinSpans,
  kTyped
};
enum Single { kHeadForward, kSumParts, kAdamW, kSingle };
constexpr const char* kNames[kTyped] = {"af_rms_norm",     "af_rms_norm_backward", "af_rope",
                                        "af_swiglu",       "af_swiglu_backward",   "af_head_backward",
                                        "af_attend_paged", "af_join_spans"};
constexpr const char* kSingleNames[kSingle] = {"af_head_forward", "af_sum_parts", "af_adamw"};

// A test's stand for a device.
struct Scripted {
  bool on = false;
  std::string driver, image;
  void (*stand_in)(int) = nullptr;
};

struct State {
  std::mutex mutex;
  Scripted scripted;
  std::optional<Driver> driver;
  std::map<int, std::unique_ptr<Kernels>> of_device;  // null: none for it, which was said
};
State& state() {
  static State s;
  return s;
}

struct Grid {
  int64_t x, y = 1;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
unsigned threads_for(int64_t vectors, unsigned most) {
  return static_cast<unsigned>(std::min<int64_t>(most, ceil_div(vectors, 32) * 32));
}
int64_t per_vector(const at::Tensor& t) { return kVectorBytes / static_cast<int64_t>(t.element_size()); }

bool of_type(at::ScalarType type, std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& t : tensors) {
    if (t.scalar_type() != type) return false;
  }
  return type == at::kFloat || type == at::kBFloat16;
}
// [rows, heads, n] whose heads follow each other, as the kernels of norms take it.
bool as_rows(const at::Tensor& t) {
  return t.dim() == 3 && t.stride(2) == 1 && (t.size(1) == 1 || t.stride(1) == t.size(2));
}
bool fits(int64_t rows, int64_t columns) { return rows > 0 && rows <= kMostRows && columns <= kMostColumns; }
// Whether t begins at the start of a vector, and with it each of parts elements in a row, and each row.
bool vectors(const at::Tensor& t, int64_t row_stride, int64_t part) {
  const int64_t N = per_vector(t);
  return reinterpret_cast<uintptr_t>(t.const_data_ptr()) % kVectorBytes == 0 && row_stride % N == 0 && part % N == 0;
}

// libtorch's current stream as the driver takes it; null of a torch that does not tell (tells_streams).
template <class Guard>
void* native(const Guard& guard, const c10::Stream& stream) {
  if constexpr (requires { guard.getStreamNativeHandle(stream); }) return guard.getStreamNativeHandle(stream);
  return nullptr;
}
template <class Guard>
constexpr bool tells_streams = requires(const Guard& guard, const c10::Stream& s) {
  guard.getStreamNativeHandle(s);
};

class Loaded : public Kernels {
 public:
  Loaded(const Driver& driver, Module module) : driver_(driver) {
    const auto find = [&](const std::string& name) {
      Function f = nullptr;
      driver_.check(driver_.function(&f, module, name.c_str()),
                    name + ", which the library's kernels lack; build it anew (scripts/build_native.sh)");
      return f;
    };
    for (int i = 0; i < kTyped; i++) {
      typed_[i][0] = find(std::string(kNames[i]) + "_fp32");
      typed_[i][1] = find(std::string(kNames[i]) + "_bf16");
    }
    for (int i = 0; i < kSingle; i++) single_[i] = find(kSingleNames[i]);
  }

  bool rms_norm(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x, const at::Tensor& weight, double eps,
                bool again) const override {
    const int64_t rows = x.size(0), heads = x.size(1), n = x.size(2);
    if (!of_type(x.scalar_type(), {y}) || !as_rows(x) || !as_rows(y) || !fits(rows, n) || heads > kMostGridY ||
        !rstd.is_contiguous())
      return false;
    const at::Tensor w = weight.to(x.scalar_type()).contiguous();
    const int whole = vectors(x, x.stride(0), n) && vectors(y, y.stride(0), n) && vectors(w, n, n);
    launch(x, of(kRmsNorm, x), {rows, heads}, threads_for(ceil_div(n, per_vector(x)), kRowThreads), 0, data(y),
           strides(y), data(rstd), data(x), strides(x), data(w), static_cast<int>(n), static_cast<float>(eps),
           static_cast<int>(again), whole);
    return true;
  }

  bool rms_norm_backward(const at::Tensor& dx, const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& weight, const at::Tensor& rstd) const override {
    const int64_t rows = x.size(0), heads = x.size(1), n = x.size(2), N = per_vector(x), vector_count = ceil_div(n, N);
    constexpr int64_t kMostShared = 200 << 10, kOrdinary = 47 << 10;
    const int64_t bytes = vector_count * N * static_cast<int64_t>(sizeof(float));
    if (!of_type(x.scalar_type(), {dx, dy}) || !as_rows(x) || !as_rows(dx) || !as_rows(dy) || !fits(rows, n) ||
        bytes > kMostShared || !rstd.is_contiguous() || (dw.defined() && !dw.is_contiguous()))
      return false;
    const at::Tensor w = weight.to(x.scalar_type()).contiguous();
    const int whole =
        vectors(x, x.stride(0), n) && vectors(dx, dx.stride(0), n) && vectors(dy, dy.stride(0), n) && vectors(w, n, n);
    const int64_t parts = std::min(rows, kParts);
    const at::Tensor part = at::empty({parts, n}, x.options().dtype(at::kFloat));
    const Function f = of(kRmsNormBackward, x);
    if (bytes > kOrdinary)
      driver_.check(driver_.set_attribute(f, kMostDynamicShared, static_cast<int>(bytes)),
                    "cuFuncSetAttribute: " + std::to_string(bytes) + " bytes of shared memory");
    launch(x, f, {parts}, threads_for(vector_count, kRowThreads), bytes, data(dx), strides(dx), data(part), data(dy),
           strides(dy), data(x), strides(x), data(w), data(rstd), static_cast<int>(rows), static_cast<int>(heads),
           static_cast<int>(n), whole);
    if (dw.defined())
      launch(x, single_[kSumParts], {ceil_div(n, kSumColumns)}, kRowThreads, 0, data(dw), data(part),
             static_cast<int>(parts), static_cast<int>(n));
    return true;
  }

  bool rope(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin, int64_t heads,
            int direction) const override {
    const int64_t T = qkv.size(0), half = cos.size(1), per_head = ceil_div(half, per_vector(qkv));
    const int64_t blocks = ceil_div(heads * per_head, kRowThreads / 2);
    if (!of_type(qkv.scalar_type(), {}) || qkv.stride(1) != 1 || !fits(T, qkv.stride(0)) || blocks > kMostGridY ||
        !cos.is_contiguous() || !sin.is_contiguous())
      return false;
    const int whole = vectors(qkv, qkv.stride(0), half);
    launch(qkv, of(kRope, qkv), {T, blocks}, kRowThreads / 2, 0, data(qkv), data(cos), data(sin),
           static_cast<int>(qkv.stride(0)), static_cast<int>(heads), static_cast<int>(half),
           static_cast<float>(direction), whole);
    return true;
  }

  bool swiglu(const at::Tensor& act, const at::Tensor& gate_up) const override {
    if (!flat({act, gate_up})) return false;
    const int64_t T = act.size(0), F = act.size(1);
    const int whole = vectors(act, F, F) && vectors(gate_up, F, F);
    launch(act, of(kSwiglu, act), columns(T, F, act), kRowThreads, 0, data(act), data(gate_up), static_cast<int>(F),
           whole);
    return true;
  }

  bool swiglu_backward(const at::Tensor& d_gate_up, const at::Tensor& act, const at::Tensor& gate_up,
                       const at::Tensor& d_act) const override {
    if (!flat({act, gate_up, d_gate_up, d_act})) return false;
    const int64_t T = act.size(0), F = act.size(1);
    const int whole = vectors(act, F, F) && vectors(gate_up, F, F) && vectors(d_gate_up, F, F) && vectors(d_act, F, F);
    launch(act, of(kSwigluBackward, act), columns(T, F, act), kRowThreads, 0, data(d_gate_up), data(act), data(gate_up),
           data(d_act), static_cast<int>(F), whole);
    return true;
  }

  bool head_forward(const at::Tensor& logits, const at::Tensor& target, double scale, const at::Tensor& logprob,
                    const at::Tensor& entropy, const at::Tensor& lse) const override {
    if (!head_rows(logits)) return false;
    const int64_t n = logits.size(0), V = logits.size(1);
    launch(logits, single_[kHeadForward], {n}, kHeadThreads, 0, data(logits), data(target), static_cast<float>(scale),
           static_cast<int>(V), static_cast<int>(vectors(logits, V, V)), data(logprob), data(entropy), data(lse));
    return true;
  }

  at::Tensor head_backward(const at::Tensor& logits, const at::Tensor& target, const at::Tensor& lse,
                           const at::Tensor& entropy, const at::Tensor& d_logprob, const at::Tensor& d_entropy,
                           double scale, at::ScalarType type) const override {
    if (!head_rows(logits) || !of_type(type, {})) return {};
    const int64_t n = logits.size(0), V = logits.size(1);
    const at::Tensor d = (type == at::kFloat ? logits : logits.view(type)).narrow(1, 0, V);
    const int whole = vectors(logits, V, V) && V % per_vector(d) == 0;
    launch(logits, of(kHeadBackward, d), {n}, kHeadThreads, 0, data(logits), data(target), data(lse), data(entropy),
           data(d_logprob), data(d_entropy), static_cast<float>(scale), static_cast<int>(V), whole);
    return d;
  }

  bool adamw(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v,
             const at::Tensor& rounded, const kernel::AdamW& a) const override {
    const int64_t n = p.numel(), blocks = ceil_div(n, static_cast<int64_t>(kStepThreads) * kStepNumbers);
    bool whole = true;
    for (const at::Tensor& t : {p, g, m, v, rounded}) {
      if (!t.defined()) continue;
      if (!t.is_contiguous() || t.numel() != n || t.scalar_type() != (t.is_same(rounded) ? at::kBFloat16 : at::kFloat))
        return false;
      whole = whole && vectors(t, 0, 0);
    }
    if (n == 0 || blocks > kMostRows) return false;
    launch(p, single_[kAdamW], {blocks}, kStepThreads, 0, data(p), data(g), data(m), data(v),
           rounded.defined() ? data(rounded) : nullptr, static_cast<long long>(n), a.beta1, a.rest1, a.beta2, a.rest2,
           a.eps, a.decay, a.step_size, 1 / a.sqrt_correction, a.gradient_scale, static_cast<int>(whole));
    return true;
  }

  bool attend_paged(const PagedRows& rows, const at::Tensor& q, const at::Tensor& kv, const at::Tensor& out,
                    int64_t kv_heads, int64_t head_dim) const override {
    const int64_t n = rows.row_N.numel(), K = kv_heads, E = head_dim, H = q.size(1) / E, G = H / K;
    const int64_t spans = ceil_div(rows.most, kSpan), blocks = K * ceil_div(G, kPagedHeads);
    const int64_t blocks_of_row = ceil_div(H * E, kPagedThreads);
    for (const at::Tensor& t : {rows.row_N, rows.sequence_N, rows.count_N, rows.table_SB}) {
      if (t.scalar_type() != at::kInt || !t.is_contiguous()) return false;
    }
    if (!of_type(q.scalar_type(), {kv, out}) || q.stride(1) != 1 || out.stride(1) != 1 || !kv.is_contiguous() ||
        !fits(n * blocks, kv.size(1)) || E > kMostPagedHead || spans > kMostGridY || blocks_of_row > kMostGridY)
      return false;
    const int64_t bytes = kPagedThreads / 32 * kPagedHeads * (E + 2) * static_cast<int64_t>(sizeof(float));
    const int whole = vectors(q, q.stride(0), E) && vectors(kv, kv.size(1), E);
    const int64_t most = spans > 1 ? std::max<int64_t>(1, kMostParts / (H * spans * (E + 2))) : n;  // rows of a launch
    for (int64_t first = 0; first < n; first += most) {
      const int64_t count = std::min(most, n - first);
      const auto some = [&](const at::Tensor& t) { return data(t.narrow(0, first, count)); };
      const at::Tensor part =
          spans > 1 ? at::empty({count, H, spans, E + 2}, q.options().dtype(at::kFloat)) : at::Tensor();
      launch(q, of(kAttendPaged, q), {count * blocks, spans}, kPagedThreads, bytes, data(out), strides(out),
             spans > 1 ? data(part) : nullptr, data(q), strides(q), data(kv), some(rows.row_N), some(rows.sequence_N),
             some(rows.count_N), data(rows.table_SB), static_cast<int>(rows.table_SB.size(1)),
             static_cast<int>(rows.block_size), static_cast<int>(K), static_cast<int>(G), static_cast<int>(E),
             static_cast<float>(1 / std::sqrt(static_cast<double>(E))), whole);
      if (spans > 1)
        launch(q, of(kJoinSpans, q), {count, blocks_of_row}, kPagedThreads, 0, data(out), strides(out), data(part),
               some(rows.row_N), some(rows.count_N), static_cast<int>(spans), static_cast<int>(H), static_cast<int>(E));
    }
    return true;
  }

 private:
  static bool flat(std::initializer_list<at::Tensor> tensors) {
    const at::Tensor& act = *tensors.begin();
    if (!of_type(act.scalar_type(), tensors) || !fits(act.size(0), 2 * act.size(1))) return false;
    for (const at::Tensor& t : tensors) {
      if (!t.is_contiguous()) return false;
    }
    return true;
  }
  static bool head_rows(const at::Tensor& logits) {
    return logits.scalar_type() == at::kFloat && logits.is_contiguous() && fits(logits.size(0), logits.size(1));
  }
  static Grid columns(int64_t rows, int64_t n, const at::Tensor& t) {
    return {rows, ceil_div(n, per_vector(t) * static_cast<int64_t>(kRowThreads))};
  }
  static void* data(const at::Tensor& t) { return t.mutable_data_ptr(); }
  static long long strides(const at::Tensor& t) { return t.stride(0); }  // of rows

  Function of(Name name, const at::Tensor& t) const { return typed_[name][t.scalar_type() == at::kBFloat16]; }

  // Arguments are passed by address, each of exactly the type that its kernel declares.
  template <class... A>
  void launch(const at::Tensor& on, Function f, Grid grid, unsigned threads, int64_t shared_bytes,
              A... arguments) const {
    void* pointers[] = {&arguments...};
    c10::OptionalDeviceGuard guard;
    void* stream = nullptr;
    if (on.is_cuda()) {
      guard.reset_device(on.device());
      const c10::impl::VirtualGuardImpl device(c10::DeviceType::CUDA);
      stream = native(device, device.getStream(on.device()));
    }
    driver_.check(driver_.launch(f, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1, threads, 1, 1,
                                 static_cast<unsigned>(shared_bytes), stream, pointers, nullptr),
                  "cuLaunchKernel");
  }

  const Driver& driver_;
  std::array<std::array<Function, 2>, kTyped> typed_{};
  std::array<Function, kSingle> single_{};
};

bool asked() {
  const char* e = std::getenv("AGENTFLY_CUDA_KERNELS");
  return e == nullptr || std::string(e) != "0";
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string out((std::istreambuf_iterator<char>(file)), {});
  if (!file) throw InputError("file " + path + " cannot be read");
  return out;
}

std::unique_ptr<Kernels> without(const std::string& why) {
  std::fprintf(stderr, "agentfly: CUDA kernels: %s; libtorch's own operations are used, which are slower\n",
               why.c_str());
  return nullptr;
}

// The context that libtorch computes in, the device's primary one, is the current one of this thread afterwards.
void enter(const Driver& d, int index) {
  void* context = nullptr;
  d.check(d.context(&context), "cuCtxGetCurrent");
  if (context != nullptr) return;
  int device = 0;
  d.check(d.device(&device, index), "cuDeviceGet");
  d.check(d.retain(&context, device), "cuDevicePrimaryCtxRetain");
  d.check(d.set_context(context), "cuCtxSetCurrent");
}

std::unique_ptr<Kernels> load(State& s, int index) {
  if (!tells_streams<c10::impl::VirtualGuardImpl>) return without("this libtorch does not tell its streams' handles");
  const std::string image = s.scripted.on ? read_file(s.scripted.image) : carried_image();
  if (image.empty())
    return without("this library was built without them (scripts/build_native.sh needs nvcc or a package index)");
  if (!s.driver) s.driver = load_driver(s.scripted.driver);
  enter(*s.driver, index);
  Module module = nullptr;
  const int result = s.driver->load(&module, image.data());
  if (result == kNoBinaryForGpu || result == kInvalidPtx || result == kUnsupportedPtxVersion)
    return without("none of those that the library carries is for this device or its driver (" +
                   s.driver->name_of(result) + ")");
  s.driver->check(result, "cuModuleLoadData");
  return std::make_unique<Loaded>(*s.driver, module);
}

}  // namespace

bool on_device(const at::Tensor& t) { return t.is_cuda() || state().scripted.on; }

const Kernels* kernels(const at::Tensor& t) {
  if (!on_device(t) || !asked()) return nullptr;
  State& s = state();
  if (s.scripted.on && s.scripted.driver.empty()) return nullptr;
  const int index = t.is_cuda() ? t.device().index() : 0;
  std::lock_guard<std::mutex> lock(s.mutex);
  auto found = s.of_device.find(index);
  if (found == s.of_device.end()) {
    c10::OptionalDeviceGuard guard;
    if (t.is_cuda()) guard.reset_device(t.device());
    found = s.of_device.emplace(index, load(s, index)).first;
  }
  if (found->second != nullptr) enter(*s.driver, index);  // another thread may have loaded them
  return found->second.get();
}

}  // namespace af::cuda

extern "C" af_error* af_cuda_scripted(const char* driver, const char* image, const char* stand_ins) {
  return af::guard([&] {
    using namespace af::cuda;
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    s.of_device.clear();
    s.driver.reset();
    if (s.scripted.stand_in != nullptr) s.scripted.stand_in(0);
    s.scripted = {};
    af::probe_products_again();
    if (driver == nullptr) return;
    s.scripted = {true, driver, image, nullptr};
    if (*stand_ins == 0) return;
    void* library = dlopen(stand_ins, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw af::InputError(dlerror());
    s.scripted.stand_in = reinterpret_cast<void (*)(int)>(dlsym(library, "af_stand_in"));
    if (s.scripted.stand_in == nullptr) throw af::InputError(std::string(stand_ins) + " has no af_stand_in");
    s.scripted.stand_in(1);
  });
}
