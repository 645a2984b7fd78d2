// The clock: it runs forward, its unit is the nanosecond, and its cost is plausible. Bounds are
// wide on purpose: a test must not assert the speed of a machine.
#include <chrono>
#include <thread>

#include "check.h"
#include "core/clock.h"

namespace ftax {
namespace {

TEST(clock_never_runs_backwards) {
  int64_t previous_ns = now_ns();
  for (int i = 0; i < 100'000; ++i) {
    const int64_t read_ns = now_ns();
    CHECK(read_ns >= previous_ns);
    previous_ns = read_ns;
  }
}

TEST(clock_counts_nanoseconds_like_the_steady_clock) {
  // Each pair of reads brackets or is bracketed, so a pause between them cannot fail the test.
  const int64_t outer_start_ns = now_ns();
  const auto start = std::chrono::steady_clock::now();
  const int64_t inner_start_ns = now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t inner_end_ns = now_ns();
  const auto end = std::chrono::steady_clock::now();
  const int64_t outer_end_ns = now_ns();
  const int64_t steady_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
  CHECK(inner_end_ns - inner_start_ns >= 20'000'000);
  CHECK(inner_end_ns - inner_start_ns <= steady_ns);
  CHECK(steady_ns <= outer_end_ns - outer_start_ns);
}

TEST(clock_cost_is_positive_and_its_resolution_is_a_step) {
  const ClockCost cost = measure_clock_cost();
  CHECK(cost.read_ns > 0.0);
  CHECK(cost.read_ns < 1e6);
  CHECK(cost.resolution_ns >= 1);
  CHECK(cost.resolution_ns <= 100'000'000);
}

}  // namespace
}  // namespace ftax
