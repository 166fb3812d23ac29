// One process's end of an NCCL group that is no data-parallel run's: rank 0 sends weights to the workers of a server,
// which speak raw NCCL (vLLM's PyNcclCommunicator). So there is no store, no c10d, and nobody to ask who is late.
//
// Every operation runs on a thread of its own, and the caller waits for it, for the deadline, or for cancel. What is
// given up is ended with ncclCommAbort from another thread; if even that does not return, thread, communicator and
// buffer are left behind, and the error says so.
//
// On CUDA everything runs on the default stream, whose handle is null: libtorch's tensors are made and copied there,
// and nothing else computes during an update.
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "clock.h"
#include "internal.h"
#include "nccl_library.h"
#include "staging.h"

namespace af {
namespace {

constexpr const char* kLeft = "; NCCL does not let go of it: its thread is left behind";
constexpr Milliseconds kGrace(5000);  // for an operation to see that it is given up, and for the abort

std::string text_of(const std::exception& e) {
  const std::string text = e.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

class NcclGroup : public std::enable_shared_from_this<NcclGroup> {
 public:
  explicit NcclGroup(const af_nccl_config& c)
      : library_(nccl_library(c.library == nullptr ? "" : c.library)),
        rank_(c.rank),
        world_(c.world),
        device_(c.device < 0 ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<int8_t>(c.device))),
        timeout_(c.timeout_ms) {
    std::memcpy(id_.internal, c.id, sizeof(id_.internal));
  }

  int rank() const { return rank_; }
  int world() const { return world_; }

  // Meets the others, then all-reduces one element, as vLLM's communicators do before anything else.
  void join() {
    const std::string late = "the " + std::to_string(world_) + " ranks have not met within " + seconds() +
                             ": a worker has not come, or cannot reach this machine";
    run(late, [this] {
      NcclConfig config;
      NcclComm comm = nullptr;
      int result = library_.init_rank(&comm, world_, id_, rank_, &config);
      {
        std::lock_guard<std::mutex> lock(mutex_);
        comm_ = comm;
      }
      settle("ncclCommInitRankConfig", result, comm);
      at::Tensor one = at::zeros({1}, at::TensorOptions(at::kFloat).device(device_));
      keep(one);
      result = library_.all_reduce(one.data_ptr(), one.data_ptr(), 1, kNcclFloat32, kNcclSum, comm, nullptr);
      settle("ncclAllReduce", result, comm);
    });
  }

  // data [n] becomes root's.
  void broadcast(void* data, int64_t n, int root) {
    joined();
    const c10::DeviceGuard guard(device_);
    const at::Tensor host = at::from_blob(data, {n}, at::kByte);
    if (!buffer_.defined() || buffer_.numel() < n) {
      buffer_ = at::Tensor();  // before the new one is made
      buffer_ = at::empty({n}, at::TensorOptions(at::kByte).device(device_));
    }
    const at::Tensor chunk = buffer_.narrow(0, 0, n);
    if (rank_ == root) chunk.copy_(host);  // the thread of a given-up operation must not read the caller's memory
    broadcast(chunk, root);
    if (rank_ != root) host.copy_(chunk);
  }

  // The same of a chunk [n] uint8 on the group's device, which nobody changes before the call has ended well.
  void broadcast(const at::Tensor& chunk, int root) {
    const NcclComm comm = joined();
    const int64_t n = chunk.numel();
    if (chunk.device() != device_)
      throw InputError("the chunk lies on " + chunk.device().str() + ", the group sends from " + device_.str());
    const c10::DeviceGuard guard(device_);
    const std::string late =
        "a chunk of " + std::to_string(n) + " bytes is not through after " + seconds() + ": a worker does not take it";
    run(late, [this, comm, chunk, n, root] {
      keep(chunk);
      const int result = library_.broadcast(chunk.data_ptr(), chunk.data_ptr(), n, kNcclUint8, root, comm, nullptr);
      settle("ncclBroadcast", result, comm);
    });
  }

  void cancel() {
    std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }

  // Leaves the group. vLLM does the same: ncclCommDestroy would wait for ranks that may be gone, and there is nothing
  // to wait for once every operation is done.
  void close() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (broken_.empty()) {
      broken_ = "the group is closed";
      abort(lock);
    }
  }

 private:
  NcclComm joined() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!broken_.empty()) throw std::runtime_error(broken_);
    if (comm_ == nullptr) throw InputError("the ranks have not met yet");
    return comm_;
  }

  std::string seconds() const {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(timeout_.count()) / 1000);
    return text;
  }

  // Runs f on a thread and waits for it; late is the error of a deadline that passes.
  void run(const std::string& late, std::function<void()> f) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!broken_.empty()) throw std::runtime_error(broken_);
    if (cancelled_) throw RankError("given up");
    error_.clear();
    std::thread([self = shared_from_this(), f = std::move(f)] { self->perform(f); }).detach();
    running_ = true;  // with the lock held: it cannot have ended
    const Milliseconds interval = interval_of(timeout_);
    for (RunningClock clock(interval); running_ && !cancelled_ && clock.now() < timeout_;) {
      changed_.wait_for(lock, interval);
    }
    const bool done = !running_;
    if (done && error_.empty()) return;
    broken_ = done ? error_ : cancelled_ ? "given up" : late;
    const std::string left = abort(lock);
    if (done) throw std::runtime_error(broken_);
    throw RankError(broken_ + left);
  }

  void perform(const std::function<void()>& f) noexcept {
    std::string error;
    try {
      const c10::DeviceGuard guard(device_);
      f();
    } catch (const c10::Error& e) {
      const std::string text = e.what_without_backtrace();
      error = text.substr(0, text.find('\n'));
    } catch (const std::exception& e) {
      error = text_of(e);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    error_ = error;
    held_ = at::Tensor();
    running_ = false;
    changed_.notify_all();
    if (!left_ || comm_ == nullptr || aborting_) return;
    try {
      abort(lock);                     // it was made after everybody had gone
    } catch (const std::exception&) {  // no thread to be had: it stays
    }
  }

  // Whatever NCCL reads and writes lives until the operation ended, even if the caller has gone.
  void keep(const at::Tensor& t) {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ = t;
  }

  // Returns when what a call began is done: first NCCL's own part, then the stream's. Once broken_ is set comm may be
  // gone.
  void settle(const char* call, int result, NcclComm comm) {
    auto pause = std::chrono::microseconds(20);
    for (;;) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!broken_.empty()) throw RankError(broken_);
      }
      if (result != kNcclSuccess && result != kNcclInProgress) {
        throw std::runtime_error(std::string(call) + ": " + library_.text(result, comm));
      }
      int state = kNcclSuccess;
      result = library_.async_error(comm, &state);
      if (result == kNcclSuccess) result = state;
      if (result == kNcclSuccess && stream_done()) return;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
  }

  bool stream_done() const {
    if (!device_.is_cuda()) return true;
    return c10::impl::getDeviceGuardImpl(at::kCUDA)->queryStream(c10::Stream(c10::Stream::DEFAULT, device_));
  }

  // Ends the communicator, with broken_ set and the lock held. Returns what is left behind, for an error.
  std::string abort(std::unique_lock<std::mutex>& lock) {
    // An operation that polls sees broken_ and leaves; one that is inside NCCL is ended by the abort.
    changed_.wait_for(lock, kGrace / 5, [&] { return !running_; });
    left_ = running_;
    if (comm_ == nullptr) return running_ ? kLeft : "";
    aborting_ = true;
    std::thread([self = shared_from_this(), comm = comm_] {
      {
        const c10::DeviceGuard guard(self->device_);
        self->library_.abort(comm);
      }
      std::lock_guard<std::mutex> lock(self->mutex_);
      self->comm_ = nullptr;
      self->aborting_ = false;
      self->changed_.notify_all();
    }).detach();
    changed_.wait_for(lock, kGrace, [&] { return !aborting_ && !running_; });
    left_ = running_;
    return aborting_ || running_ ? kLeft : "";
  }

  const NcclLibrary& library_;
  const int rank_, world_;
  const at::Device device_;
  const Milliseconds timeout_;
  NcclId id_{};
  at::Tensor buffer_;  // the caller's thread's

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  NcclComm comm_ = nullptr;  // set by join's thread, read by the one thread that runs an operation
  at::Tensor held_;
  std::string broken_;  // why no further call is possible; empty: none
  std::string error_;   // of the operation that ended last
  bool running_ = false, cancelled_ = false, aborting_ = false;
  bool left_ = false;  // the caller has gone while an operation runs
};

namespace {

void check_nccl(const af_nccl_config& c) {
  if (c.world < 1 || c.rank < 0 || c.rank >= c.world) {
    throw InputError("rank " + std::to_string(c.rank) + " of " + std::to_string(c.world) + "; ranks count from 0");
  }
  if (c.timeout_ms < 1) throw InputError("timeout_ms must be above 0");
  if (c.device < 0 && (c.library == nullptr || *c.library == 0)) {
    throw InputError("NCCL moves the memory of CUDA devices, and the device is the CPU");
  }
  if (c.device >= af_cuda_devices()) {
    throw InputError("libtorch sees " + std::to_string(af_cuda_devices()) + " CUDA device(s); there is no device " +
                     std::to_string(c.device));
  }
}

}  // namespace
}  // namespace af

struct af_nccl {
  std::shared_ptr<af::NcclGroup> group;
};

extern "C" {

af_error* af_nccl_open(const char* library, af_nccl_library* out) {
  return af::guard([&] {
    const af::NcclLibrary& l = af::nccl_library(library == nullptr ? "" : library);
    std::snprintf(out->path, sizeof out->path, "%s", l.path.c_str());
    out->version = l.version;
  });
}

af_error* af_nccl_unique_id(const char* library, char* id) {
  return af::guard([&] {
    const af::NcclLibrary& l = af::nccl_library(library == nullptr ? "" : library);
    af::NcclId made{};
    if (const int result = l.get_unique_id(&made); result != af::kNcclSuccess) {
      throw std::runtime_error("ncclGetUniqueId: " + l.text(result, nullptr));
    }
    std::memcpy(id, made.internal, sizeof made.internal);
  });
}

af_error* af_nccl_new(const af_nccl_config* c, af_nccl** out) {
  return af::guard([&] {
    af::check_nccl(*c);
    auto g = std::make_unique<af_nccl>();
    g->group = std::make_shared<af::NcclGroup>(*c);
    af::live++;
    *out = g.release();
  });
}

af_error* af_nccl_join(af_nccl* g) {
  return af::guard([&] { g->group->join(); });
}

af_error* af_nccl_broadcast(af_nccl* g, int root, void* data, int64_t n) {
  return af::guard([&] {
    if (root < 0 || root >= g->group->world()) throw af::InputError("root is no rank");
    if (n < 0) throw af::InputError("a negative number of bytes");
    g->group->broadcast(data, n, root);
  });
}

af_error* af_nccl_broadcast_staging(af_nccl* g, int root, af_staging* s, int64_t n) {
  return af::guard([&] {
    if (root < 0 || root >= g->group->world()) throw af::InputError("root is no rank");
    if (n < 0 || n > s->bytes.numel()) throw af::InputError("more bytes than the buffer has");
    g->group->broadcast(s->bytes.narrow(0, 0, n), root);
  });
}

void af_nccl_cancel(af_nccl* g) { g->group->cancel(); }

void af_nccl_free(af_nccl* g) {
  if (g == nullptr) return;
  af::live--;
  try {
    g->group->close();
  } catch (...) {  // out of memory, or of threads: the communicator stays
  }
  delete g;
}

}  // extern "C"
