// How long the threads of this process stood in a run queue: ready to run and not running, because
// others had their CPUs. A request on a team of threads ends with the slowest of them, and a thread
// that waits in a queue is seen by no loop that another thread runs. Linux only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

namespace ftax {

// Of one thread, since it was started.
struct WaitTotals {
  int64_t waited_ns = 0;
  int64_t turns = 0;  // times that it was given a CPU, each of which ends at most one wait
};

// Of all threads together.
struct Waits {
  int64_t count = 0;    // how many there can have been of at least so long
  int64_t time_ns = 0;  // of all, however short
};

class ThreadWaits {
 public:
  ThreadWaits() = default;
  ~ThreadWaits();
  ThreadWaits(const ThreadWaits&) = delete;
  ThreadWaits& operator=(const ThreadWaits&) = delete;

  // Takes up threads that were started since, from now on. What they have waited so far is not
  // counted.
  void find_threads();

  // Waits since the last call, and how many were of at least `least_ns`; none where the kernel does
  // not say. A thread that still waits counts when it runs again.
  Waits take(int64_t least_ns);

  // How long all have waited since `take`, which this is no call of.
  [[nodiscard]] int64_t read_time() const;

  // Whether the kernel says.
  [[nodiscard]] bool is_known() const { return !threads_.empty(); }

 private:
  struct Thread {
    int file;
    WaitTotals totals;
  };
  std::map<pid_t, Thread> threads_;
};

}  // namespace ftax
