// The watchdog barks once when its time is up, and never after it was destroyed.
#include <atomic>
#include <thread>

#include "check.h"
#include "core/clock.h"
#include "measure/watchdog.h"

namespace ftax {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kHour = 3'600'000 * kMs;

TEST(it_barks_once_and_not_early) {
  std::atomic<int> barks = 0;
  const int64_t start = now_ns();
  std::atomic<int64_t> barked_at = 0;
  {
    const Watchdog watchdog(20 * kMs, [&] {
      barked_at = now_ns();
      ++barks;
    });
    while (barks == 0) std::this_thread::yield();
  }
  CHECK(barks == 1);
  CHECK(barked_at - start >= 20 * kMs);
}

TEST(it_barks_from_a_thread_of_its_own) {
  std::atomic<bool> barked = false;
  std::thread::id barker;
  {
    const Watchdog watchdog(0, [&] {
      barker = std::this_thread::get_id();
      barked = true;
    });
    while (!barked) std::this_thread::yield();
  }
  CHECK(barker != std::this_thread::get_id());
}

TEST(destroyed_in_time_it_never_barks_and_does_not_wait) {
  std::atomic<int> barks = 0;
  const int64_t start = now_ns();
  {
    const Watchdog watchdog(kHour, [&] { ++barks; });
  }
  CHECK(barks == 0);
  CHECK(now_ns() - start < kHour);
}

TEST(destroying_it_waits_for_a_bark_under_way) {
  std::atomic<bool> started = false;
  std::atomic<bool> finished = false;
  {
    const Watchdog watchdog(0, [&] {
      started = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      finished = true;
    });
    while (!started) std::this_thread::yield();
  }
  CHECK(finished);
}

}  // namespace
}  // namespace ftax
