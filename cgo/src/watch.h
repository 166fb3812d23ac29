// What the ranks of a group say of themselves, over a store of c10d's.
//
// The store's keys live under "agentfly/": state/<rank> holds "<beat> <entered> <kind> <operation>\n<text>".
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "clock.h"

namespace af {

std::string seconds_text(Clock::duration d);
std::string first_line(const std::string& text);

// A collective that a rank has begun.
struct Place {
  uint64_t number = 0;  // of those it has begun, from 1
  std::string operation;
};

// The ranks of a group by their numbers in the run: first, first + stride, ...
struct Numbers {
  int first = 0, stride = 1;
  int of(int rank) const { return first + rank * stride; }
};

// A thread that tells the store every interval that this rank lives, which collective it is in, and whether it failed,
// and reads the same of the others. It has a connection of its own: a request to a store whose process is stopped never
// returns, and nothing but this thread may hang there.
class Watch {
 public:
  // where names the store in errors; numbers are what errors call the ranks.
  Watch(c10::intrusive_ptr<c10d::Store> store, std::string where, int rank, int world, const Numbers& numbers,
        Milliseconds interval);
  static std::shared_ptr<Watch> start(c10::intrusive_ptr<c10d::Store> store, std::string where, int rank, int world,
                                      const Numbers& numbers, Milliseconds interval);
  static std::string key(int rank) { return "agentfly/state/" + std::to_string(rank); }

  // This rank begins a collective.
  Place enter(const std::string& operation);
  // Publishes why this rank gives up, once, and waits a little until the others can read it.
  void publish(char kind, const std::string& text);
  void stop();
  Milliseconds interval() const { return interval_; }
  Clock::duration now();  // of the watch's clock, by which deadlines are counted
  // Who is to blame while this rank waits for the collective at; "" for nobody yet.
  // root >= 0: only that rank's life counts. limit: how long a rank may be silent; late: whether the deadline passed.
  std::string blame(const Place& at, int root, Clock::duration limit, bool late);

 private:
  // What one rank says of itself.
  struct Peer {
    std::string state;      // as read last
    uint64_t entered = 0;   // collectives that it has begun
    char kind = '-';        // '-' fine, 'f' failed: text says why, 'd' text names the rank that is to blame
    std::string operation;  // the last it began
    std::string text;
    Clock::duration moved{};  // when state last changed
    void read(const std::string& now, Clock::duration at);
  };
  std::string state();
  std::string rank_text(size_t rank) const { return "rank " + std::to_string(numbers_.of(static_cast<int>(rank))); }
  void run();

  c10::intrusive_ptr<c10d::Store> store_;
  const std::string where_;
  const int rank_;
  const Numbers numbers_;
  std::vector<std::string> keys_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  Peer mine_;
  uint64_t beat_ = 0, rounds_ = 0;
  RunningClock clock_;
  Clock::duration polled_{};  // when the store last answered
  std::string lost_;
  bool stopping_ = false, ended_ = false;
  const Milliseconds interval_;
};

}  // namespace af
