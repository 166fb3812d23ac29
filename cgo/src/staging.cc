#include "staging.h"

#include <cstring>

#include "exchange.h"
#include "memory.h"

namespace af {
namespace {

at::ScalarType packed_type(int dtype) {
  if (dtype == AF_F32) return at::kFloat;
  if (dtype == AF_BF16) return at::kBFloat16;
  throw InputError("tensors are staged as F32 or BF16, not as dtype " + std::to_string(dtype));
}

// Writes the tensors back to back and returns their bytes. A tensor is rounded on its way, as a server would round it.
int64_t pack(af_staging& s, const char* const* names, int64_t count, at::ScalarType type) {
  const auto each = static_cast<int64_t>(at::elementSize(type));
  int64_t at = 0;
  for (int64_t i = 0; i < count; i++) {
    const at::Tensor t = merged(*s.model, names[i]);
    const int64_t bytes = t.numel() * each;
    if (bytes > s.bytes.numel() - at)
      throw InputError("parameter " + std::string(names[i]) + " ends at byte " + std::to_string(at + bytes) +
                       " of a buffer of " + std::to_string(s.bytes.numel()));
    s.bytes.narrow(0, at, bytes).view(type).view(t.sizes()).copy_(t);
    at += bytes;
  }
  synchronize(s.bytes.device());
  return at;
}

void check_read(const af_staging& s, int64_t n) {
  if (n < 0 || n > s.bytes.numel())
    throw InputError(std::to_string(n) + " bytes of a buffer of " + std::to_string(s.bytes.numel()));
}

}  // namespace
}  // namespace af

extern "C" {

af_error* af_staging_new(af_model* m, const af_staging_config* c, af_staging** out) {
  return af::guard([&] {
    if (c->capacity < 1) throw af::InputError("a buffer of " + std::to_string(c->capacity) + " bytes holds nothing");
    const std::string driver = c->driver == nullptr ? "" : c->driver;
    if (c->ipc != 0 && m->device.is_cpu() && driver.empty())
      throw af::InputError("a handle of CUDA opens memory of a CUDA device, and the model lies on the CPU");
    auto s = std::make_unique<af_staging>();
    s->model = m->shared_from_this();
    const auto options = at::TensorOptions(at::kByte);
    if (c->ipc != 0) {
      s->shared = std::make_unique<af::SharedMemory>(af::cuda_driver(driver), m->device, c->capacity);
      s->bytes = at::from_blob(s->shared->data(), {c->capacity}, options.device(m->device));
    } else {
      s->bytes = at::empty({c->capacity}, options.device(m->device));
    }
    af::live++;
    *out = s.release();
  });
}

void af_staging_free(af_staging* s) {
  if (s == nullptr) return;
  af::live--;
  delete s;
}

af_error* af_staging_pack(af_staging* s, const char* const* names, int64_t count, int dtype, int64_t* bytes) {
  return af::guard([&] {
    af::settle(*s->model);
    *bytes = af::pack(*s, names, count, af::packed_type(dtype));
  });
}

af_error* af_staging_read(const af_staging* s, void* out, int64_t n) {
  return af::guard([&] {
    af::check_read(*s, n);
    at::from_blob(out, {n}, at::kByte).copy_(s->bytes.narrow(0, 0, n));
  });
}

af_error* af_staging_handle(const af_staging* s, char* handle) {
  return af::guard([&] {
    if (!s->shared) throw af::InputError("the buffer was made without ipc");
    const af::IpcHandle h = s->shared->handle();
    std::memcpy(handle, h.bytes, sizeof h.bytes);
  });
}

}  // extern "C"
