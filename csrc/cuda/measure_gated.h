// Issue time and device time of one inference, apart, for any runner that enqueues on torch's
// current stream: the gate holds the device back until the host has issued everything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/runner.h"

namespace ftax::cuda {

struct GatePlan {
  int repetitions = 20;
  int64_t watchdog_ns = 2'000'000'000;  // of one repetition
  std::optional<int> launches;          // of one request, if known: what has to fit in the queue

  // Throws InvalidArgumentError naming the field.
  void check() const;
};

struct GatedRepetition {
  int64_t issue_ns;        // the host's time in enqueue(), with the device held
  int64_t device_span_ns;  // from the gate's end to the end of the work, by events on the device
  int64_t drain_ns;        // from opening the gate until the host knew that the work had ended
  bool cut;                // the gate opened by itself, so none of the three means anything
};

struct GateResult {
  std::vector<GatedRepetition> repetitions;  // fewer than asked for if `reason` says so
  std::string reason;  // not empty: why there are cut repetitions, or none at all
};

// Two requests without a gate come first, so that memory has grown and kernels are loaded. Stops
// early when more repetitions were cut than not: a runner that waits for the device inside is cut
// each time, and each time costs the whole watchdog. The runner is not called under a gate if
// `launches` do not fit in the queue. Work that the runner puts on other streams is not held back
// and is in no span.
//
// Throws UnavailableError without a CUDA device, and what the runner throws.
[[nodiscard]] GateResult measure_gated(Runner& runner, const GatePlan& plan);

}  // namespace ftax::cuda
