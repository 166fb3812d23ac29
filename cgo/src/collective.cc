// Collectives over PyTorch's c10d with deadlines that name the rank that is late.
//
// Three parts:
//   Watch   (watch.h) says who is late, gone or failed.
//   c10d    Gloo for CPU tensors, NCCL for CUDA ones. Its own deadlines are set far away, because all they could say is
//           that somebody is late.
//   Ranks   starts an operation, and looks at it and at the Watch until it is done or the deadline passes. What
//           still runs when it gives up is leaked with the memory it writes to: the process is about to end.
//
// Gloo's reduce-scatter is an all-reduce and a copy, which moves twice the bytes. Ours is an all-to-all: every rank
// sends each other one its terms of that one's piece, and adds up what it gets, in the order of the ranks.
#include "collective.h"

#include <c10/util/Logging.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "exchange.h"
#include "nccl.h"
#include "watch.h"

namespace af {
namespace {

constexpr Milliseconds kNever = std::chrono::hours(24 * 30);
constexpr int64_t kPiece = 16 << 20;  // floats of a CUDA tensor that go through the CPU at once

// Over all ranks, without a deadline of c10d's: t becomes the sum over them, or root's.
c10::intrusive_ptr<c10d::Work> start_sum(c10d::Backend& backend, const at::Tensor& t) {
  c10d::AllreduceOptions o;
  o.timeout = kNever;
  std::vector<at::Tensor> list{t};
  return backend.allreduce(list, o);
}
c10::intrusive_ptr<c10d::Work> start_broadcast(c10d::Backend& backend, const at::Tensor& t, int64_t root) {
  c10d::BroadcastOptions o;
  o.rootRank = root;
  o.timeout = kNever;
  std::vector<at::Tensor> list{t};
  return backend.broadcast(list, o);
}

// Connects to the store, or serves it, and waits until every rank has written its first state.
c10::intrusive_ptr<c10d::Store> join(const af_group_config& c, const std::string& where) {
  c10d::TCPStoreOptions o;
  o.port = static_cast<uint16_t>(c.port);
  o.isServer = c.rank == 0 && c.serve != 0;
  o.waitWorkers = false;
  o.timeout = Milliseconds(c.timeout_ms);
  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(c.address, o);
  } catch (const std::exception& e) {
    if (o.isServer) throw RankError("rank 0 cannot serve the store at " + where + ": " + first_line(e.what()));
    throw RankError("rank 0 has not served the store at " + where + " within " +
                    seconds_text(Milliseconds(c.timeout_ms)) + ": " + first_line(e.what()));
  }
  if (c.prefix != nullptr && *c.prefix != 0) store = c10::make_intrusive<c10d::PrefixStore>(c.prefix, store);
  return store;
}

Numbers numbers_of(const af_group_config& c) { return {c.first, c.stride}; }

// Asks the store for every rank's first state again and again: a request that waits would end with the store's process,
// and could not name who is missing.
void wait_for_all(c10d::Store& store, const af_group_config& c) {
  const Milliseconds timeout(c.timeout_ms);
  std::string missing;
  try {
    store.set(Watch::key(c.rank), std::vector<uint8_t>{'0', ' ', '0', ' ', '-', ' '});
    for (RunningClock clock(interval_of(timeout));;) {
      std::string now;
      for (int i = 0; i < c.world; i++) {
        if (!store.check({Watch::key(i)})) now += (now.empty() ? "" : ", ") + std::to_string(numbers_of(c).of(i));
      }
      missing = now;
      if (missing.empty()) return;
      if (clock.now() > timeout) break;
      std::this_thread::sleep_for(Milliseconds(20));
    }
  } catch (const std::exception& e) {
    if (missing.empty()) throw RankError("rank 0 is gone: its store does not answer (" + first_line(e.what()) + ")");
  }
  throw RankError("rank " + missing + " of " + std::to_string(numbers_of(c).of(c.world - 1) + 1) +
                  " has not joined within " + seconds_text(timeout));
}

std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address) {
  if (const char* name = std::getenv("GLOO_SOCKET_IFNAME"); name != nullptr && *name != 0) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(name);
  }
  if (address == "localhost" || address == "127.0.0.1") {
    return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  }
  return c10d::ProcessGroupGloo::createDefaultDevice();
}

// c10d writes warnings with stack traces to standard error when a connection breaks; we say it in one line.
void quiet() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, 2);
}

// Counts what a rank receives, and the time in which anything goes on. Threads of the backends report to it.
class Meter {
 public:
  void receive(int64_t Traffic::*what, int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    total_.*what += bytes;
  }
  void begin() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (going_++ == 0) since_ = Clock::now();
  }
  void end() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--going_ == 0) total_.busy += seconds(since_);
  }
  void wait(Clock::time_point since) {
    std::lock_guard<std::mutex> lock(mutex_);
    total_.waited += seconds(since);
  }
  Traffic total() {
    std::lock_guard<std::mutex> lock(mutex_);
    return total_;
  }

 private:
  static double seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }
  std::mutex mutex_;
  Traffic total_;
  int64_t going_ = 0;
  Clock::time_point since_;
};

class Ranks : public Group {
 public:
  explicit Ranks(const af_group_config& c)
      : rank_(c.rank), world_(c.world), device_(c.device), timeout_(Milliseconds(c.timeout_ms)) {
    quiet();
    const std::string where = std::string(c.address) + ":" + std::to_string(c.port);
    store_ = join(c, where);
    wait_for_all(*store_, c);
    watch_ = Watch::start(store_->clone(), where, rank_, world_, numbers_of(c), interval_of(timeout_));
    try {
      connect(c);
    } catch (...) {
      watch_->stop();
      throw;
    }
  }

  ~Ranks() override {
    watch_->stop();
    if (broken().empty()) return;
    // A thread of c10d may still be inside an operation; destroying its group would wait for it.
    new c10::intrusive_ptr<c10d::Backend>(gloo_);
    new c10::intrusive_ptr<c10d::Backend>(nccl_);
    new c10::intrusive_ptr<c10d::Store>(store_);
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  void barrier() override {
    begin("barrier");
    meet();
  }

  void broadcast(const at::Tensor& t, int root, bool patient) override {
    begin("broadcast from rank " + std::to_string(root));
    if (root != rank_) meter_->receive(&Traffic::rest, static_cast<int64_t>(t.nbytes()));
    over(t, patient ? root : -1, [&](c10d::Backend& b, const at::Tensor& x) { return start_broadcast(b, x, root); });
  }

  void all_reduce(const at::Tensor& flat) override {
    begin("all-reduce of " + std::to_string(flat.numel()));
    meter_->receive(&Traffic::rest, 2 * (world_ - 1) * static_cast<int64_t>(flat.nbytes()) / world_);  // Gloo's ring
    over(flat, -1, start_sum);
  }

  std::unique_ptr<Pending> start_reduce_scatter(const at::Tensor& bucket) override {
    begin("reduce-scatter of " + std::to_string(bucket.numel()));
    const Range own = piece(bucket.numel(), rank_);
    meter_->receive(&Traffic::sums, (world_ - 1) * own.length * bucket.element_size());
    return use_nccl(bucket) ? nccl_sum(bucket) : gloo_sum(bucket, own);
  }

  std::unique_ptr<Pending> start_all_gather(const at::Tensor& bucket) override {
    begin("all-gather of " + std::to_string(bucket.numel()));
    meter_->receive(&Traffic::gathers, (bucket.numel() - piece(bucket.numel(), rank_).length) * bucket.element_size());
    return use_nccl(bucket) ? nccl_gather(bucket) : gloo_gather(bucket);
  }

  Traffic traffic() const override { return meter_->total(); }

  void gather(const at::Tensor& out, const at::Tensor& in) override {
    begin("gather of " + std::to_string(in.numel()));
    c10d::AllgatherOptions o;
    o.timeout = kNever;
    std::vector<at::Tensor> inputs{in.contiguous()};
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int r = 0; r < world_; r++) outputs[0].push_back(at::empty_like(inputs[0]));
    meter_->receive(&Traffic::rest, (world_ - 1) * static_cast<int64_t>(in.nbytes()));
    finish(gloo_->allgather(outputs, inputs, o), -1, place_);
    for (int r = 0; r < world_; r++) out.select(0, r).copy_(outputs[0][r]);
  }

  void fail(const std::string& why) override {
    if (break_off("this rank failed: " + first_line(why))) watch_->publish('f', why);
  }

 private:
  // Some work of the backends, and what is left to do when it is through.
  class Operation : public Pending {
   public:
    Operation(
        Ranks& ranks, std::vector<c10::intrusive_ptr<c10d::Work>> works, std::function<void()> then = [] {})
        : ranks_(ranks), place_(ranks.place_), works_(std::move(works)), then_(std::move(then)) {
      for (const auto& work : works_) {
        ranks_.meter_->begin();
        work->getFuture()->addCallback([meter = ranks_.meter_](c10::ivalue::Future&) { meter->end(); });
      }
    }
    void wait() override {
      const auto start = Clock::now();
      for (const auto& work : works_) ranks_.finish(work, -1, place_);
      then_();
      ranks_.meter_->wait(start);
    }

   private:
    Ranks& ranks_;
    const Place place_;
    const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
    const std::function<void()> then_;
  };

  Range piece(int64_t n, int64_t rank) const { return piece_of(n, rank, world_); }

  // A CUDA tensor without NCCL goes through the CPU.
  std::unique_ptr<Pending> gloo_sum(const at::Tensor& bucket, const Range& own) {
    const at::Tensor terms = bucket.to(at::kCPU);
    const at::Tensor all = at::empty({world_, own.length}, terms.options());  // every rank's terms of the own piece
    std::vector<int64_t> give, take(world_, own.length);
    for (int64_t r = 0; r < world_; r++) give.push_back(piece(bucket.numel(), r).length);
    c10d::AllToAllOptions o;
    o.timeout = kNever;
    at::Tensor out = all.view(-1), in = terms.view(-1);
    return std::make_unique<Operation>(*this, std::vector{gloo_->alltoall_base(out, in, take, give, o)},
                                       [all, sum = bucket.narrow(0, own.begin, own.length)] {
                                         at::Tensor total = all[0];
                                         for (int64_t r = 1; r < all.size(0); r++) total.add_(all[r]);
                                         sum.copy_(total);
                                       });
  }

  std::unique_ptr<Pending> gloo_gather(const at::Tensor& bucket) {
    const at::Tensor values = bucket.to(at::kCPU);
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int64_t r = 0; r < world_; r++) {
      const Range range = piece(bucket.numel(), r);
      if (range.length == 0) continue;
      works.push_back(start_broadcast(*gloo_, values.narrow(0, range.begin, range.length), r));
    }
    return std::make_unique<Operation>(*this, std::move(works), [bucket, values] {
      if (bucket.is_cuda()) bucket.copy_(values);
    });
  }

  // NCCL's pieces are equal; what the last rank has besides is summed, or sent, on its own.
  std::unique_ptr<Pending> nccl_sum(const at::Tensor& bucket) {
    meet_once();
    const int64_t n = bucket.numel(), chunk = piece(n, 0).length, rest = chunk * world_;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    if (world_ > 1 && chunk > 0) {
      at::Tensor whole = bucket.narrow(0, 0, rest), own = bucket.narrow(0, rank_ * chunk, chunk);
      c10d::ReduceScatterOptions o;
      o.timeout = kNever;
      works.push_back(nccl_->_reduce_scatter_base(own, whole, o));
    }
    if (rest < n) works.push_back(start_sum(*nccl_, bucket.narrow(0, rest, n - rest)));
    return std::make_unique<Operation>(*this, std::move(works));
  }

  std::unique_ptr<Pending> nccl_gather(const at::Tensor& bucket) {
    meet_once();
    const int64_t n = bucket.numel(), chunk = piece(n, 0).length, rest = chunk * world_;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    if (world_ > 1 && chunk > 0) {
      at::Tensor whole = bucket.narrow(0, 0, rest), own = bucket.narrow(0, rank_ * chunk, chunk);
      c10d::AllgatherOptions o;
      o.timeout = kNever;
      works.push_back(nccl_->_allgather_base(whole, own, o));
    }
    if (rest < n) works.push_back(start_broadcast(*nccl_, bucket.narrow(0, rest, n - rest), world_ - 1));
    return std::make_unique<Operation>(*this, std::move(works));
  }

  bool use_nccl(const at::Tensor& t) const { return t.is_cuda() && nccl_; }

  // Gloo connects every pair of ranks, and has no deadline that could name one.
  void connect(const af_group_config& c) {
    struct Result {
      std::mutex mutex;
      bool done = false;
      std::string error;
      c10::intrusive_ptr<c10d::Backend> gloo;
    };
    auto result = std::make_shared<Result>();
    std::thread([result, store = store_->clone(), address = std::string(c.address), rank = rank_, world = world_] {
      c10::intrusive_ptr<c10d::Backend> made;
      std::string error;
      try {
        auto options = c10d::ProcessGroupGloo::Options::create();
        options->timeout = kNever;
        options->devices.push_back(gloo_device(address));
        auto prefixed = c10::make_intrusive<c10d::PrefixStore>("agentfly/gloo", store);
        made = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, rank, world, options);
      } catch (const std::exception& e) {
        error = first_line(e.what());
      }
      std::lock_guard<std::mutex> lock(result->mutex);
      result->gloo = std::move(made);
      result->error = error;
      result->done = true;
    }).detach();
    poll(-1, watch_->enter("connect"), [&] {
      std::lock_guard<std::mutex> lock(result->mutex);
      return result->done;
    });
    if (!result->error.empty()) throw RankError("Gloo cannot connect the ranks: " + result->error);
    gloo_ = result->gloo;
    if (device_ >= 0 && has_nccl()) {
      auto prefixed = c10::make_intrusive<c10d::PrefixStore>("agentfly/nccl", store_->clone());
      // NCCL's watchdog ends the process without a word that names a rank: later than we do.
      nccl_ = make_nccl(prefixed, rank_, world_, 4 * timeout_.count() + 60000);
    }
  }

  void begin(const std::string& operation) {
    check_whole();
    place_ = watch_->enter(operation);
  }

  // Runs f on t over the backend of its device; a CUDA tensor without NCCL goes through the CPU in pieces.
  template <class F>
  void over(const at::Tensor& t, int root, F&& f) {
    if (t.numel() == 0) return;
    if (!t.is_cuda()) return finish(f(*gloo_, t), root, place_);
    if (nccl_) {
      meet();
      return finish(f(*nccl_, t), root, place_);
    }
    const at::Tensor flat = t.view(-1);
    for (int64_t i = 0; i < flat.numel(); i += kPiece) {
      const at::Tensor piece = flat.narrow(0, i, std::min(kPiece, flat.numel() - i));
      const at::Tensor cpu = piece.to(at::kCPU);
      finish(f(*gloo_, cpu), root, place_);
      piece.copy_(cpu);
    }
  }

  // All ranks are here: before NCCL, whose first operation blocks until all have come.
  void meet() {
    finish(start_sum(*gloo_, at::zeros({1})), -1, place_);
    met_ = true;
  }
  void meet_once() {
    if (!met_) meet();
  }

  void finish(const c10::intrusive_ptr<c10d::Work>& work, int root, const Place& place) {
    try {
      poll(root, place, [&] { return work->isCompleted(); });
    } catch (...) {
      new c10::intrusive_ptr<c10d::Work>(work);  // it may still write to its tensors
      throw;
    }
    try {
      work->wait();
    } catch (const std::exception& e) {
      give_up(broken_connection(first_line(e.what()), place));
    }
  }

  // Returns when done() is true; gives up when the deadline passes or another rank is gone.
  template <class F>
  void poll(int root, const Place& place, F&& done) {
    check_whole();
    const auto start = watch_->now();
    auto look = start + watch_->interval();
    auto pause = std::chrono::microseconds(20);
    while (!done()) {
      const auto now = watch_->now();
      if (now > look) {
        look = now + watch_->interval();
        const bool late = root < 0 && now - start > timeout_;
        if (const std::string who = watch_->blame(place, root, timeout_, late); !who.empty()) give_up(who);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
  }

  // A connection broke: the rank at its other end may be the one that died, or one that gave up because of it.
  std::string broken_connection(const std::string& what, const Place& place) {
    const auto interval = watch_->interval();
    for (int i = 0; i < 10;
         i++) {  // a dead rank's beat stands still for three intervals, a failed rank's text comes soon
      const std::string who = watch_->blame(place, -1, 3 * interval, false);
      if (!who.empty()) return who;
      std::this_thread::sleep_for(interval / 2);
    }
    return "the connection to another rank broke: " + what;
  }

  // Threads that wait for a Pending read why the group is broken while another begins an operation.
  std::string broken() const {
    std::lock_guard<std::mutex> lock(broken_mutex_);
    return broken_;
  }
  void check_whole() const {
    if (const std::string why = broken(); !why.empty()) throw RankError(why);
  }
  // Whether this was the first reason, which is the one that stays.
  bool break_off(const std::string& why) {
    std::lock_guard<std::mutex> lock(broken_mutex_);
    if (!broken_.empty()) return false;
    broken_ = why;
    return true;
  }
  [[noreturn]] void give_up(const std::string& who) {
    break_off(who);
    watch_->publish('d', who);
    throw RankError(who);
  }

  const int rank_, world_, device_;
  const Milliseconds timeout_;
  mutable std::mutex broken_mutex_;
  std::string broken_;  // why no further call is possible; empty: none
  Place place_;         // of the collective that was begun last
  bool met_ = false;    // all ranks have been here since they connected
  const std::shared_ptr<Meter> meter_ = std::make_shared<Meter>();
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<Watch> watch_;
  c10::intrusive_ptr<c10d::Backend> gloo_, nccl_;
};

void check_config(const af_group_config& c) {
  if (c.world < 1 || c.world > 1 << 14)
    throw InputError("world is " + std::to_string(c.world) + ", allowed are 1 to 16384");
  if (c.rank < 0 || c.rank >= c.world) {
    throw InputError("rank is " + std::to_string(c.rank) + ", allowed are 0 to " + std::to_string(c.world - 1));
  }
  if (c.address == nullptr || *c.address == 0) throw InputError("the address of rank 0 is missing");
  if (c.port < 1 || c.port > 65535) throw InputError("port is " + std::to_string(c.port) + ", allowed are 1 to 65535");
  if (c.timeout_ms < 1) throw InputError("timeout_ms must be above 0");
  if (c.first < 0 || c.stride < 1) throw InputError("first is below 0, or stride below 1");
}

// Bytes of the caller as a tensor of our own: a collective that is given up may still write to it.
at::Tensor bytes_in(const void* data, int64_t n) {
  if (n < 0) throw InputError("a negative number of bytes");
  at::Tensor t = at::empty({n}, at::kByte);
  if (n > 0) std::memcpy(t.mutable_data_ptr<uint8_t>(), data, n);
  return t;
}

void on_floats(float* data, int64_t n, const std::function<void(const at::Tensor&)>& f) {
  if (n < 1) throw InputError("no floats");
  at::Tensor t = at::empty({n}, at::kFloat);
  std::memcpy(t.mutable_data_ptr<float>(), data, n * sizeof(float));
  f(t);
  std::memcpy(data, t.const_data_ptr<float>(), n * sizeof(float));
}

}  // namespace
}  // namespace af

extern "C" {

af_error* af_group_new(const af_group_config* c, af_group** out) {
  return af::guard([&] {
    af::check_config(*c);
    auto g = std::make_unique<af_group>();
    g->group = std::make_shared<af::Ranks>(*c);
    af::live++;
    *out = g.release();
  });
}

void af_group_free(af_group* g) {
  if (g == nullptr) return;
  af::live--;
  try {
    delete g;
  } catch (...) {  // c10d complains about a connection that is gone
  }
}

af_error* af_group_barrier(af_group* g) {
  return af::guard([&] { g->group->barrier(); });
}

af_error* af_group_broadcast(af_group* g, int root, void* data, int64_t n, int patient) {
  return af::guard([&] {
    if (root < 0 || root >= g->group->world()) throw af::InputError("root is no rank");
    at::Tensor t = af::bytes_in(data, n);
    g->group->broadcast(t, root, patient != 0 && g->group->rank() != root);
    if (n > 0) std::memcpy(data, t.const_data_ptr<uint8_t>(), n);
  });
}

af_error* af_group_gather(af_group* g, const void* in, int64_t n, void* out) {
  return af::guard([&] {
    if (n < 1) throw af::InputError("no bytes");
    at::Tensor all = at::empty({g->group->world(), n}, at::kByte);
    g->group->gather(all, af::bytes_in(in, n));
    std::memcpy(out, all.const_data_ptr<uint8_t>(), all.numel());
  });
}

af_error* af_group_all_reduce(af_group* g, float* data, int64_t n) {
  return af::guard([&] { af::on_floats(data, n, [&](const at::Tensor& t) { g->group->all_reduce(t); }); });
}

af_error* af_group_reduce_scatter(af_group* g, float* data, int64_t n) {
  return af::guard(
      [&] { af::on_floats(data, n, [&](const at::Tensor& t) { g->group->start_reduce_scatter(t)->wait(); }); });
}

af_error* af_group_all_gather(af_group* g, float* data, int64_t n) {
  return af::guard(
      [&] { af::on_floats(data, n, [&](const at::Tensor& t) { g->group->start_all_gather(t)->wait(); }); });
}

void af_group_traffic(const af_group* g, af_traffic* out) {
  const af::Traffic t = g->group->traffic();
  *out = {t.sums, t.gathers, t.rest, t.busy, t.waited};
}

void af_group_fail(af_group* g, const char* why) {
  try {
    g->group->fail(why);
  } catch (...) {  // out of memory: the others find out by the silence
  }
}

af_error* af_model_broadcast(af_model* m, af_group* g) {
  return af::guard([&] {
    af::settle(*m);
    af::broadcast(*m, *g->group);
  });
}

}  // extern "C"
