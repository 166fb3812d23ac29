// The part of NCCL's C interface that sends weights to other processes, with prototypes of our own: it compiles without
// NCCL's and CUDA's headers and loads libnccl.so.2 when it is asked for. Source: nccl.h of NCCL 2.14 and newer, which
// keep these symbols, numbers and layouts.
#pragma once
#include <cstddef>
#include <string>

namespace af {

using NcclComm = void*;

struct NcclId {  // ncclUniqueId, passed by value
  char internal[128];
};

// ncclConfig_t as of 2.14: a newer library takes what it does not find, by the version, from its defaults.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;  // calls return at once with kNcclInProgress, so that another thread can end them
};

enum { kNcclSuccess = 0, kNcclInProgress = 7 };  // ncclResult_t
enum { kNcclUint8 = 1, kNcclFloat32 = 7 };       // ncclDataType_t
enum { kNcclSum = 0 };                           // ncclRedOp_t

struct NcclLibrary {
  std::string path;  // that was loaded
  int version = 0;   // 22907 is 2.29.7

  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclId*) = nullptr;
  int (*init_rank)(NcclComm*, int world, NcclId, int rank, NcclConfig*) = nullptr;
  int (*async_error)(NcclComm, int*) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int type, int op, NcclComm, void* stream) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int type, int root, NcclComm, void* stream) = nullptr;
  int (*abort)(NcclComm) = nullptr;

  // What a result means, in one line; comm may be null.
  std::string text(int result, NcclComm comm) const;
};

// Loads it once; it stays loaded. path "": the library that libtorch has loaded, one that lies beside libtorch, or one
// that the loader finds. Throws std::runtime_error, which says where it was looked for or what it lacks.
const NcclLibrary& nccl_library(const std::string& path);

}  // namespace af
