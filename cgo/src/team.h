// Threads that share the pieces of a loop. Whoever is free takes the next piece, so a thread that the system lets wait
// holds nobody up: with OpenMP's fixed shares every loop lasts as long as its slowest thread, a time slice on a busy
// machine.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace af {

class Team {
 public:
  explicit Team(int threads);  // the caller's and threads - 1 more
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  int size() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls f(begin, end) for pieces that cover [0, n), each of at least grain but the last, and returns when all are
  // done. Rethrows the first exception. One caller at a time.
  template <class F>
  void run(int64_t n, int64_t grain, const F& f) {
    if (n <= 0) return;
    if (helpers_.empty() || n <= grain) return f(int64_t{0}, n);
    run_pieces(
        n, grain,
        [](const void* context, int64_t begin, int64_t end) { (*static_cast<const F*>(context))(begin, end); }, &f);
  }

 private:
  using Function = void (*)(const void*, int64_t, int64_t);
  void run_pieces(int64_t n, int64_t grain, Function f, const void* context);
  bool take_piece();  // false: there is none
  void help();

  // Generation of the loop (24 bits), its pieces (20), the next one to take (20). Who takes a piece may read what is
  // below: it does not change before that piece is done.
  std::atomic<uint64_t> state_{0};
  Function function_ = nullptr;
  const void* context_ = nullptr;
  int64_t n_ = 0, piece_ = 0;
  std::atomic<int64_t> done_{0};
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::vector<std::thread> helpers_;
};

}  // namespace af
