// The peak of memory that several threads take and give back. The thread sanitizer runs it too.
#include <thread>
#include <vector>

#include "check.h"
#include "tape/running_peak.h"

namespace ftax {
namespace {

TEST(the_peak_is_the_largest_total_and_not_below_the_start) {
  RunningPeak bytes;
  bytes.add(-50);
  CHECK(bytes.total() == -50);
  CHECK(bytes.peak() == 0);
  bytes.add(70);
  bytes.add(-20);
  bytes.add(15);
  CHECK(bytes.total() == 15);
  CHECK(bytes.peak() == 20);
}

TEST(threads_that_add_at_once_lose_nothing) {
  constexpr int kThreads = 4;
  constexpr int kTimes = 100'000;
  RunningPeak bytes;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&bytes] {
      for (int time = 0; time < kTimes; ++time) {
        bytes.add(8);
        bytes.add(-8);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(bytes.total() == 0);
  CHECK(bytes.peak() >= 8);
  CHECK(bytes.peak() <= 8 * kThreads);
}

TEST(a_peak_that_threads_reach_together_is_found) {
  constexpr int kTimes = 100'000;
  RunningPeak bytes;
  const auto grow = [&bytes] {
    for (int time = 0; time < kTimes; ++time) bytes.add(1);
  };
  std::thread other(grow);
  grow();
  other.join();
  CHECK(bytes.peak() == 2 * kTimes);
}

}  // namespace
}  // namespace ftax
