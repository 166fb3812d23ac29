// The loop of llama.cpp's batched bench over llama.h alone: the tool itself pulls in 60 more files, which take longer
// to compile than the library.
//
//   bench_llama quantize IN.gguf OUT.gguf float32|bfloat16
//   bench_llama run MODEL.gguf DTYPE auto|off PROMPT NEW THREADS SEQUENCES...     one JSON line a figure; auto|off: flash attention
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "llama.h"

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "bench_llama: %s\n", what);
  std::exit(1);
}

void add(llama_batch& b, llama_token token, int position, int sequence, bool logits) {
  const int i = b.n_tokens++;
  b.token[i] = token;
  b.pos[i] = position;
  b.n_seq_id[i] = 1;
  b.seq_id[i][0] = sequence;
  b.logits[i] = logits;
}

int quantize(const char* from, const char* to, const char* dtype) {
  llama_model_quantize_params p = llama_model_quantize_default_params();
  p.ftype = std::strcmp(dtype, "bfloat16") == 0 ? LLAMA_FTYPE_MOSTLY_BF16 : LLAMA_FTYPE_ALL_F32;
  p.allow_requantize = true;
  return llama_model_quantize(from, to, &p) == 0 ? 0 : 1;
}

void measure(llama_context* ctx, int vocab, int prompt, int fresh, int sequences, const char* dtype, const char* flash) {
  constexpr int kBatch = 2048;  // tokens of a call
  llama_memory_clear(llama_get_memory(ctx), false);
  llama_batch b = llama_batch_init(kBatch, 0, 1);
  auto decode = [&] {
    if (llama_decode(ctx, b) != 0) fail("llama_decode failed");
    b.n_tokens = 0;
  };
  double start = now();
  for (int s = 0; s < sequences; s++) {
    for (int i = 0; i < prompt; i++) {
      add(b, std::rand() % vocab, i, s, i == prompt - 1);
      if (b.n_tokens == kBatch) decode();
    }
  }
  if (b.n_tokens > 0) decode();
  llama_synchronize(ctx);
  const double prefill = now() - start;
  std::vector<double> steps;  // seconds of each
  for (int i = 0; i < fresh; i++) {
    start = now();
    for (int s = 0; s < sequences; s++) add(b, std::rand() % vocab, prompt + i, s, true);
    decode();
    llama_synchronize(ctx);
    steps.push_back(now() - start);
  }
  llama_batch_free(b);
  if (dtype == nullptr) return;
  std::sort(steps.begin(), steps.end());
  const double median = steps[steps.size() / 2], slow = steps[steps.size() * 9 / 10];
  const struct {
    const char* what;
    double value;
  } figures[] = {{"prefill", sequences * prompt / prefill}, {"decode", sequences / median}, {"decode_spread", slow / median}};
  for (const auto& f : figures) {
    std::printf("{\"engine\": \"llama.cpp\", \"dtype\": \"%s\", \"flash\": \"%s\", \"what\": \"%s\", \"sequences\": %d, \"value\": %.3f}\n", dtype, flash,
                f.what, sequences, f.value);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "quantize") == 0) return quantize(argv[2], argv[3], argv[4]);
  if (argc < 9 || std::strcmp(argv[1], "run") != 0)
    fail("usage: quantize IN OUT DTYPE | run MODEL DTYPE auto|off PROMPT NEW THREADS SEQUENCES...");
  const char* dtype = argv[3];
  const char* flash = argv[4];
  const int prompt = std::atoi(argv[5]), fresh = std::atoi(argv[6]), threads = std::atoi(argv[7]);
  int most = 1;
  for (int i = 8; i < argc; i++) most = std::max(most, std::atoi(argv[i]));
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[2], llama_model_default_params());
  if (model == nullptr) fail("the model does not load");
  llama_context_params p = llama_context_default_params();
  p.n_ctx = static_cast<uint32_t>(most * ((prompt + fresh + 255) / 256 * 256));
  p.n_batch = 2048, p.n_ubatch = 512, p.n_seq_max = static_cast<uint32_t>(most);
  p.n_threads = p.n_threads_batch = threads;
  if (std::strcmp(flash, "off") == 0) p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* ctx = llama_init_from_model(model, p);
  if (ctx == nullptr) fail("no context");
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  measure(ctx, vocab, 16, 1, 1, nullptr, flash);  // warm up
  for (int i = 8; i < argc; i++) measure(ctx, vocab, prompt, fresh, std::atoi(argv[i]), dtype, flash);
  llama_free(ctx);
  llama_model_free(model);
  llama_backend_free();
}
