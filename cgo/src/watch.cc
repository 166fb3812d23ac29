#include "watch.h"

#include <algorithm>
#include <sstream>
#include <thread>

namespace af {

std::string seconds_text(Clock::duration d) {
  std::ostringstream s;
  s.precision(3);
  s << std::chrono::duration<double>(d).count() << " s";
  return s.str();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Watch::Watch(c10::intrusive_ptr<c10d::Store> store, std::string where, int rank, int world, const Numbers& numbers,
             Milliseconds interval)
    : store_(std::move(store)),
      where_(std::move(where)),
      rank_(rank),
      numbers_(numbers),
      peers_(world),
      clock_(interval),
      interval_(interval) {
  for (int i = 0; i < world; i++) keys_.push_back(key(i));
}

std::shared_ptr<Watch> Watch::start(c10::intrusive_ptr<c10d::Store> store, std::string where, int rank, int world,
                                    const Numbers& numbers, Milliseconds interval) {
  auto w = std::make_shared<Watch>(std::move(store), std::move(where), rank, world, numbers, interval);
  std::thread([w] { w->run(); }).detach();  // joined through ended_, unless it hangs in the store
  return w;
}

Place Watch::enter(const std::string& operation) {
  std::lock_guard<std::mutex> lock(mutex_);
  mine_.operation = operation;
  return {++mine_.entered, operation};
}

void Watch::publish(char kind, const std::string& text) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (mine_.kind != '-') return;
  mine_.kind = kind;
  mine_.text = first_line(text);
  const uint64_t before = rounds_;
  changed_.notify_all();
  changed_.wait_for(lock, std::min<Milliseconds>(2 * interval_, Milliseconds(500)),
                    [&] { return rounds_ > before + 1 || ended_ || !lost_.empty(); });
  if (rank_ == 0) {  // the store may end with this process: the others look at it once an interval
    changed_.wait_for(lock, interval_ + interval_ / 2 + Milliseconds(50), [&] { return ended_; });
  }
}

void Watch::stop() {
  std::unique_lock<std::mutex> lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, 2 * interval_ + Milliseconds(200), [&] { return ended_; });
}

Clock::duration Watch::now() {
  std::lock_guard<std::mutex> lock(mutex_);
  return clock_.now();
}

std::string Watch::blame(const Place& at, int root, Clock::duration limit, bool late) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto now = clock_.now();
  for (size_t i = 0; i < peers_.size(); i++) {
    const Peer& p = peers_[i];
    if (static_cast<int>(i) == rank_ || p.kind == '-') continue;
    return p.kind == 'f' ? rank_text(i) + " failed: " + p.text : p.text;
  }
  if (!lost_.empty()) return "rank 0 is gone: the store at " + where_ + " does not answer (" + lost_ + ")";
  if (now - polled_ > limit) {
    return "rank 0 is late: the store at " + where_ + " has not answered for " + seconds_text(now - polled_) +
           "; its process is stopped, dead or unreachable";
  }
  const std::string here = std::to_string(at.number) + ", " + at.operation;
  std::string names;
  for (size_t i = 0; i < peers_.size(); i++) {
    if (static_cast<int>(i) == rank_ || (root >= 0 && static_cast<int>(i) != root)) continue;
    const Peer& p = peers_[i];
    const auto silent = now - p.moved;
    std::string why;
    if (silent > limit || (late && silent > 3 * interval_)) {
      why = "silent for " + seconds_text(silent) + ": its process is stopped, dead or unreachable";
    } else if (late && p.entered < at.number) {
      why = "alive, still at collective " + std::to_string(p.entered) + ", " + p.operation;
    } else {
      continue;
    }
    names += (names.empty() ? "" : ", ") + rank_text(i) + " (" + why + ")";
  }
  if (!names.empty()) return "late at collective " + here + ": " + names;
  if (late) return "every rank has entered collective " + here + ", but it does not end; is the network that slow?";
  return "";
}

std::string Watch::state() {
  return std::to_string(++beat_) + " " + std::to_string(mine_.entered) + " " + mine_.kind + " " + mine_.operation +
         "\n" + mine_.text;
}

void Watch::Peer::read(const std::string& now, Clock::duration at) {
  if (now == state) return;
  state = now;
  moved = at;
  std::istringstream s(now);
  uint64_t beat = 0;
  s >> beat >> entered >> kind;
  s.get();
  std::getline(s, operation);
  std::getline(s, text);
}

void Watch::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const std::string own = state();
    lock.unlock();
    std::vector<std::vector<uint8_t>> read;
    std::string lost;
    try {
      store_->set(keys_[rank_], std::vector<uint8_t>(own.begin(), own.end()));
      read = store_->multiGet(keys_);
    } catch (const std::exception& e) {
      lost = first_line(e.what());
    }
    lock.lock();
    if (!lost.empty()) {
      lost_ = lost;
      break;
    }
    polled_ = clock_.now();
    for (size_t i = 0; i < read.size(); i++) peers_[i].read(std::string(read[i].begin(), read[i].end()), polled_);
    const bool told = mine_.kind == '-' || own.find(mine_.text) != std::string::npos;
    rounds_++;
    changed_.notify_all();
    if (told) changed_.wait_for(lock, interval_);
  }
  ended_ = true;
  changed_.notify_all();
}

}  // namespace af
