#include "nccl_library.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace af {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libnccl.so.2";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The packages' folder that libtorch lies in, as torch/lib; "" if it lies elsewhere.
fs::path packages() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&at::show_config), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  const fs::path library = fs::weakly_canonical(info.dli_fname, ignored);
  return library.parent_path().parent_path().parent_path();
}

// Where the wheels of NCCL put it: nvidia/nccl/lib, and nvidia/cu13/lib.
std::vector<fs::path> beside_libtorch() {
  std::vector<fs::path> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(packages() / "nvidia", ignored)) {
    const fs::path library = entry.path() / "lib" / kName;
    if (fs::exists(library, ignored)) out.push_back(library);
  }
  return out;
}

void* find(const std::string& path) {
  if (!path.empty()) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error("NCCL cannot be loaded: " + first_line(dlerror()));
    return handle;
  }
  if (void* handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return handle;
  std::string tried;
  for (const auto& library : beside_libtorch()) {
    if (void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    tried += "; " + first_line(dlerror());
  }
  if (void* handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL)) return handle;
  throw std::runtime_error("libnccl.so.2 is not found, neither beside libtorch nor by the loader (" +
                           first_line(dlerror()) + tried + "); install PyPI's nvidia-nccl-cu13");
}

std::string path_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : kName;
}

std::unique_ptr<NcclLibrary> load(const std::string& path) {
  void* handle = find(path);
  auto l = std::make_unique<NcclLibrary>();
  l->path = path_of(handle);
  auto symbol = [&](auto& f, const char* name) {
    f = reinterpret_cast<std::decay_t<decltype(f)>>(dlsym(handle, name));
    if (f == nullptr) throw std::runtime_error(l->path + " has no " + name + "; NCCL 2.14 or newer is needed");
  };
  symbol(l->error_string, "ncclGetErrorString");
  symbol(l->last_error, "ncclGetLastError");
  symbol(l->get_version, "ncclGetVersion");
  symbol(l->get_unique_id, "ncclGetUniqueId");
  symbol(l->init_rank, "ncclCommInitRankConfig");
  symbol(l->async_error, "ncclCommGetAsyncError");
  symbol(l->all_reduce, "ncclAllReduce");
  symbol(l->broadcast, "ncclBroadcast");
  symbol(l->abort, "ncclCommAbort");
  if (const int result = l->get_version(&l->version); result != kNcclSuccess) {
    throw std::runtime_error(l->path + ": ncclGetVersion: " + l->text(result, nullptr));
  }
  return l;
}

}  // namespace

std::string NcclLibrary::text(int result, NcclComm comm) const {
  const char* what = error_string(result);
  std::string out = what != nullptr ? first_line(what) : "error " + std::to_string(result);
  const char* last = last_error(comm);
  if (last != nullptr && *last != 0) out += ": " + first_line(last);
  return out;
}

const NcclLibrary& nccl_library(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<NcclLibrary>> loaded;
  std::lock_guard<std::mutex> lock(mutex);
  auto& l = loaded[path];
  if (!l) l = load(path);
  return *l;
}

}  // namespace af
