// A scripted libcuda.so.1 for tests: device memory is a file of the folder SCRIPTED_CUDA, mapped into this process, and a
// handle is that file's path. SCRIPTED_CUDA_FAULT names a call that fails.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {

struct Memory {
  std::string path;
  size_t bytes;
};
std::map<uint64_t, Memory> all;
int made = 0;

bool fails(const char* call) {
  const char* fault = std::getenv("SCRIPTED_CUDA_FAULT");
  return fault != nullptr && std::string(fault) == call;
}

}  // namespace

extern "C" {

int cuGetErrorString(int error, const char** text) {
  *text = error == 2 ? "out of memory" : "invalid argument";
  return 0;
}

int cuMemAlloc_v2(uint64_t* memory, size_t bytes) {
  if (fails("cuMemAlloc")) return 2;
  const std::string path = std::string(std::getenv("SCRIPTED_CUDA")) + "/" + std::to_string(++made);
  const int file = open(path.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return 2;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (p == MAP_FAILED) return 2;
  *memory = reinterpret_cast<uint64_t>(p);
  all[*memory] = {path, bytes};
  return 0;
}

int cuMemFree_v2(uint64_t memory) {
  const auto found = all.find(memory);
  if (found == all.end()) return 1;
  munmap(reinterpret_cast<void*>(memory), found->second.bytes);
  unlink(found->second.path.c_str());
  all.erase(found);
  return 0;
}

int cuIpcGetMemHandle(char* handle, uint64_t memory) {
  const auto found = all.find(memory);
  if (found == all.end() || found->second.path.size() > 63) return 1;
  std::memset(handle, 0, 64);
  std::memcpy(handle, found->second.path.data(), found->second.path.size());
  return 0;
}

}  // extern "C"
