// A scripted libnccl.so.2 for tests: no GPU, no network. The memory is the host's, ranks are processes or threads of
// one machine that exchange files in the folder $SCRIPTED_NCCL, and every call is written to its file calls.<rank>.
//
// $SCRIPTED_NCCL_FAULT makes rank 0 misbehave at its n-th broadcast (0: at the meeting): "error n" returns an error
// code, "late-error n" reports one through ncclCommGetAsyncError, "block n" does not return until it is aborted, "deaf
// n" neither then.
//
//   g++ -std=c++20 -shared -fPIC -o libnccl.so.2 scripted_nccl.cc
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

enum { kSuccess = 0, kSystem = 2, kArgument = 4, kUsage = 5, kRemote = 6, kInProgress = 7 };

struct Id {
  char internal[128];
};

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

thread_local std::string last;

std::string folder() {
  const char* f = std::getenv("SCRIPTED_NCCL");
  return f == nullptr ? "" : f;
}

void note(int rank, const std::string& line) {
  std::ofstream(folder() + "/calls." + std::to_string(rank), std::ios::app) << line << "\n";
}

bool faulty(int rank, const std::string& kind, int n) {
  const char* fault = std::getenv("SCRIPTED_NCCL_FAULT");
  return rank == 0 && fault != nullptr && fault == kind + " " + std::to_string(n);
}

std::string type_name(int type) { return type == 1 ? "uint8" : type == 7 ? "float32" : "type " + std::to_string(type); }

struct Comm {
  std::string prefix;  // of the files of this group
  int rank = 0, world = 0;
  bool blocking = true;
  std::atomic<bool> aborted{false};

  int operations = 0, broadcasts = 0;
  enum { kNothing, kMeet, kReduce, kBroadcast } doing = kNothing;
  bool written = false;
  int late_error = kSuccess;
  const char* in = nullptr;
  char* out = nullptr;
  size_t bytes = 0;
  int root = 0;

  std::string file(int r) const { return prefix + "." + std::to_string(operations) + "." + std::to_string(r); }

  void write(const void* data, size_t n) {
    const std::string temporary = file(rank) + ".new";
    std::ofstream(temporary, std::ios::binary).write(static_cast<const char*>(data), static_cast<std::streamsize>(n));
    fs::rename(temporary, file(rank));
    written = true;
  }

  bool all_there() const {
    for (int r = 0; r < world; r++) {
      if (!fs::exists(file(r))) return false;
    }
    return true;
  }

  static std::string read(const std::string& path) {
    std::ifstream f(path, std::ios::binary);
    std::ostringstream s;
    s << f.rdbuf();
    return s.str();
  }

  // Looks whether what is being done is done.
  int progress() {
    if (late_error != kSuccess) return late_error;
    switch (doing) {
      case kNothing:
        return kSuccess;
      case kMeet:
        if (!written) write("", 0);
        if (!all_there()) return kInProgress;
        break;
      case kReduce: {
        if (!written) write(in, bytes);
        if (!all_there()) return kInProgress;
        std::vector<float> sum(bytes / sizeof(float));
        for (int r = 0; r < world; r++) {
          const std::string data = read(file(r));
          if (data.size() != bytes) return fail("another rank is in another collective");
          std::vector<float> one(sum.size());
          std::memcpy(one.data(), data.data(), bytes);
          for (size_t i = 0; i < sum.size(); i++) sum[i] += one[i];
        }
        std::memcpy(out, sum.data(), bytes);
        break;
      }
      case kBroadcast: {
        if (rank == root) {
          if (!written) write(in, bytes);
          if (!all_there()) return kInProgress;
          break;
        }
        if (!fs::exists(file(root))) return kInProgress;
        const std::string data = read(file(root));
        if (data.size() != bytes) {
          return fail("this rank takes " + std::to_string(bytes) + " bytes, rank " + std::to_string(root) + " sends " +
                      std::to_string(data.size()));
        }
        std::memcpy(out, data.data(), bytes);
        write("", 0);
        break;
      }
    }
    doing = kNothing;
    written = false;
    operations++;
    return kSuccess;
  }

  int fail(const std::string& why) {
    last = why;
    return late_error = kUsage;
  }

  int begin(int n) {
    if (faulty(rank, "error", n)) {
      last = "the script says so";
      return kSystem;
    }
    if (faulty(rank, "late-error", n)) late_error = kRemote;
    const bool deaf = faulty(rank, "deaf", n);
    if (deaf || faulty(rank, "block", n)) {
      while (deaf || !aborted) usleep(1000);
      return kSystem;
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    int result = progress();
    while (blocking && result == kInProgress) {
      if (aborted || std::chrono::steady_clock::now() > until) return kRemote;
      usleep(200);
      result = progress();
    }
    return result;
  }
};

// They are kept for good: a call that is given up may still read one.
Comm* new_comm() {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Comm>> all;
  std::lock_guard<std::mutex> lock(mutex);
  return all.emplace_back(std::make_unique<Comm>()).get();
}

int meet(Comm** comm, int world, const Id& id, int rank, bool blocking) {
  note(rank,
       "init rank " + std::to_string(rank) + " of " + std::to_string(world) + (blocking ? "" : " without blocking"));
  auto* c = new_comm();
  c->prefix = std::string(id.internal);
  c->rank = rank;
  c->world = world;
  c->blocking = blocking;
  c->doing = Comm::kMeet;
  *comm = c;
  return c->begin(0);
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kSystem:
      return "unhandled system error";
    case kArgument:
      return "invalid argument";
    case kUsage:
      return "invalid usage";
    case kRemote:
      return "remote process exited or there was a network error";
    default:
      return "unknown result";
  }
}
const char* ncclGetLastError(Comm*) { return last.c_str(); }

int ncclGetVersion(int* version) {
  *version = 22907;
  return kSuccess;
}

int ncclGetUniqueId(Id* id) {
  static std::atomic<int> next{0};
  note(0, "unique id");
  std::memset(id, 0, sizeof *id);
  const std::string prefix = folder() + "/" + std::to_string(getpid()) + "-" + std::to_string(next++);
  if (folder().empty() || prefix.size() >= sizeof id->internal) return kSystem;
  std::memcpy(id->internal, prefix.c_str(), prefix.size());
  return kSuccess;
}

int ncclCommInitRank(Comm** comm, int world, Id id, int rank) { return meet(comm, world, id, rank, true); }

int ncclCommInitRankConfig(Comm** comm, int world, Id id, int rank, Config* config) {
  if (config->size < 20 || config->magic != 0xcafebeef || config->version < 21400) return kArgument;
  return meet(comm, world, id, rank, config->blocking != 0);
}

int ncclCommGetAsyncError(Comm* c, int* state) {
  *state = c->progress();
  return kSuccess;
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, Comm* c, void* stream) {
  note(c->rank, "all-reduce " + std::to_string(count) + " " + type_name(type) + (op == 0 ? ", sum" : ", not sum") +
                    (stream == nullptr ? "" : ", a stream"));
  if (type != 7 || op != 0) return kArgument;
  c->in = static_cast<const char*>(in);
  c->out = static_cast<char*>(out);
  c->bytes = count * sizeof(float);
  c->doing = Comm::kReduce;
  return c->begin(-1);
}

int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* c, void* stream) {
  note(c->rank, "broadcast " + std::to_string(count) + " " + type_name(type) + " from rank " + std::to_string(root) +
                    (stream == nullptr ? "" : ", a stream"));
  if (type != 1) return kArgument;
  c->in = static_cast<const char*>(in);
  c->out = static_cast<char*>(out);
  c->bytes = count;
  c->root = root;
  c->doing = Comm::kBroadcast;
  return c->begin(++c->broadcasts);
}

int ncclCommAbort(Comm* c) {
  note(c->rank, "abort");
  c->aborted = true;
  return kSuccess;
}

// vLLM's wrapper wants these to be there and calls none of them in a weight transfer.
int ncclReduce() { return kUsage; }
int ncclAllGather() { return kUsage; }
int ncclReduceScatter() { return kUsage; }
int ncclSend() { return kUsage; }
int ncclRecv() { return kUsage; }
int ncclCommDestroy() { return kUsage; }
int ncclCommSuspend() { return kUsage; }
int ncclCommResume() { return kUsage; }
int ncclGroupStart() { return kUsage; }
int ncclGroupEnd() { return kUsage; }
int ncclCommWindowRegister() { return kUsage; }
int ncclCommWindowDeregister() { return kUsage; }

}  // extern "C"
