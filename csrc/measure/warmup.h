// Warm-up: run until latency has stopped falling, or until a limit, after which no request begins.
#pragma once

#include <cstdint>

#include "measure/agree.h"
#include "measure/runner.h"

namespace ftax {

struct WarmupPlan {
  int iterations = 0;                 // so many if > 0, unless the limit is met; until steady if 0
  int min_iterations = 5;             // TorchScript still compiles on its second and third call
  int64_t limit_ns = 10'000'000'000;  // give up waiting for steadiness after this
  double tolerance_ratio = 0.02;      // steady: a window is not faster than the last by more
};

struct WarmupReport {
  int iterations = 0;
  int64_t elapsed_ns = 0;
  int64_t latency_ns = 0;  // median of the last window
  int64_t mean_ns = 0;     // the smallest mean of a window: other work makes some longer
  bool steady = false;
};

// The caller holds the runner's scope. Processes that agree run the same requests: the times that
// decide how many, and are reported, are the longest of any of them.
[[nodiscard]] WarmupReport warm_up(Runner& runner, const WarmupPlan& plan, const Agree& agree = {});

}  // namespace ftax
