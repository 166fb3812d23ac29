// Time, as the deadlines of waits for other processes count it.
#pragma once
#include <algorithm>
#include <chrono>

namespace af {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// How often a wait of at most timeout looks at what it waits for.
inline Milliseconds interval_of(Milliseconds timeout) {
  return std::clamp<Milliseconds>(timeout / 10, Milliseconds(10), Milliseconds(1000));
}

// The time in which this process ran. The steady clock goes on while a process is stopped: after a pause of a whole run
// (Ctrl-Z, scontrol suspend) a deadline by it would have passed, although no other process was late. Who waits reads
// this clock at least about every interval; a longer time between two readings counts as one interval.
class RunningClock {
 public:
  explicit RunningClock(Clock::duration interval) : interval_(interval) {}
  Clock::duration now() {
    const auto read = Clock::now();
    ran_ += std::min(read - read_, interval_);
    read_ = read;
    return ran_;
  }

 private:
  const Clock::duration interval_;
  Clock::time_point read_ = Clock::now();  // when it was read last
  Clock::duration ran_{};
};

}  // namespace af
