// Kernels for AVX2 with FMA, for AVX-512, for its instructions for bfloat16 and for AMX, picked at run time on x86:
// functions between AF_TARGET_AVX2 (AF_TARGET_AVX512, AF_TARGET_AVX512BF16) and AF_TARGET_END may use its intrinsics.
// Everywhere else, and for the tests, there is a plain version of each. No -march flag: a build runs on any machine of
// the architecture.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define AF_X86
#include <immintrin.h>

#include <cstdlib>
#include <cstring>
#define AF_TARGET_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define AF_TARGET_AVX512 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,avx512f\")")
#define AF_TARGET_AVX512BF16 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,avx512f,avx512bf16\")")
#define AF_TARGET_END _Pragma("GCC pop_options")
namespace af {
inline bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}
// AGENTFLY_CPU=avx2 leaves AVX-512 alone, AGENTFLY_CPU=avx512 its instructions for bfloat16 and AGENTFLY_CPU=avx512bf16
// AMX, so that one machine can run as each kind of processor; see docs/performance.md.
inline bool runs_as(const char* kind) {
  const char* cpu = std::getenv("AGENTFLY_CPU");
  return cpu != nullptr && std::strcmp(cpu, kind) == 0;
}
inline bool has_avx512() {
  static const bool has = has_avx2() && !runs_as("avx2") && __builtin_cpu_supports("avx512f");
  return has;
}
inline bool has_avx512bf16() {
  static const bool has = has_avx512() && !runs_as("avx512") && __builtin_cpu_supports("avx512bf16");
  return has;
}
inline bool has_amx() {
  static const bool has = has_avx512bf16() && !runs_as("avx512bf16") && __builtin_cpu_supports("amx-tile") &&
                          __builtin_cpu_supports("amx-bf16");
  return has;
}
}  // namespace af
#endif
