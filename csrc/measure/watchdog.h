// Calls a function after a time, unless it is destroyed first: what opens a gate that nobody else
// can open any more. The function runs on a thread of the watchdog's own, because the thread that
// it guards may be stuck in a driver call with every lock held.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace ftax {

class Watchdog {
 public:
  // `bark` must not throw, and must not wait for the thread that destroys the watchdog.
  Watchdog(int64_t timeout_ns, std::function<void()> bark);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  // Afterwards `bark` has returned or will never run.
  ~Watchdog();

 private:
  void wait(int64_t timeout_ns);

  std::function<void()> bark_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  std::thread thread_;  // the last member: it reads the others
};

}  // namespace ftax
