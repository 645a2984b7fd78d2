// A condition variable with a deadline on the steady clock: changing the wall clock neither hastens
// nor delays it.
#include "measure/watchdog.h"

#include <chrono>
#include <utility>

namespace ftax {

Watchdog::Watchdog(int64_t timeout_ns, std::function<void()> bark)
    : bark_(std::move(bark)), thread_([this, timeout_ns] { wait(timeout_ns); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void Watchdog::wait(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  const bool stopped =
      stop_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return stopped_; });
  if (!stopped) bark_();
}

}  // namespace ftax
