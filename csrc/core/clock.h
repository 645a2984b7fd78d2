// The one clock of ftax. CLOCK_MONOTONIC rather than the raw clock or the time-stamp counter: the
// kernel serves it without a system call, its unit is nanoseconds, and its slewing by NTP (at most
// 500 ppm) is far below what a round can resolve.
#pragma once

#include <time.h>

#include <cstdint>

namespace ftax {

[[nodiscard]] inline int64_t now_ns() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);  // cannot fail: the clock exists and the pointer is valid
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + static_cast<int64_t>(now.tv_nsec);
}

struct ClockCost {
  double read_ns;         // of one now_ns(), median over batches of back-to-back reads
  int64_t resolution_ns;  // smallest step ever seen between two reads that differ
};

[[nodiscard]] ClockCost measure_clock_cost();

}  // namespace ftax
