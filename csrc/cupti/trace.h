// Traces a runner: what it made the device do, iteration by iteration, on the clock of ftax.
// Nothing here times the runner. Tracing slows what it traces, so the host times only say which
// record belongs to which iteration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cupti/activities.h"
#include "cupti/library.h"
#include "measure/timed_loop.h"

namespace ftax::cupti {

struct RawTrace {
  // Attribute device records to iterations by their times: before CUDA 13.1 Update 1, CUPTI gave
  // graph launches wrong correlation ids in all but the first session.
  std::vector<Request> iterations;
  Activities activities;  // in the order in which they started
  uint64_t dropped_records = 0;
  int buffers = 0;
  std::string cupti_file;      // where it was loaded from
  uint32_t cupti_version = 0;  // as cuptiGetVersion gives it
  // Why the records should not be believed; empty if no reason was seen. Dropped records stand
  // apart.
  std::vector<std::string> problems;
};

// Warms the runner up (at least twice: see settle() in trace.cpp) and traces `iterations`
// inferences, each of them prepared before its begin; what that did is not in the trace. `kinds`:
// "kernel" (always on; copies and memsets with it), "runtime", "driver", "overhead". What the
// runner throws comes out after CUPTI was switched off. Throws InvalidArgumentError, and
// UnavailableError as Session does.
[[nodiscard]] RawTrace trace_runner(const Library& library, Runner& runner, int iterations,
                                    int warmup, const std::vector<std::string>& kinds);

}  // namespace ftax::cupti
