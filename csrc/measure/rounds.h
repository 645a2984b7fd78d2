// Interleaved rounds: in each round every runner takes its samples once, in random order, so that a
// drift of the machine falls on all of them alike. One number comes out of each round and runner
// (the median of its samples, the first ones dropped); see docs/statistics.md for what follows.
// Rounds in which the host was disturbed are kept, and count only where too few others are left.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/round_table.h"
#include "core/stopping.h"
#include "measure/agree.h"
#include "measure/host_probe.h"
#include "measure/runner.h"
#include "measure/timed_loop.h"
#include "measure/warmup.h"

namespace ftax {

// Thrown by a runner or by the progress callback when the user wants to stop (Ctrl-C): what was
// measured stays, the round that was under way is dropped.
class Interrupted : public Error {
 public:
  using Error::Error;
};

struct RoundPlan {
  Mode mode = Mode::kLatency;
  // Nothing begins after its time limit, neither a request of the warm-up nor a round, but the
  // first round: without it there would be no result. What is under way ends.
  StoppingRule rule;
  WarmupPlan warmup;
  // Of one runner in one round, aimed at. How many requests fit is estimated in the warm-up. If the
  // first rounds show that far more do (a first call compiles), they are forgotten.
  int64_t round_duration_ns = 20'000'000;
  int samples_per_round = 0;  // exactly so many if > 0, otherwise from the duration
  // First samples of a round, not counted in the median: at least so many, and where samples follow
  // from the duration, those that begin in its first quarter. A request that outlasts the round and
  // takes 50 ms or more is its only sample, and is counted.
  int dropped_per_round = 1;
  uint64_t seed = 0;
  std::vector<int> cpus;  // pin the measuring thread to this set; empty: do not pin
  // Before rounds, altogether at most so long, wait for a neighbour to leave the core. This is time
  // beyond the rule's limit.
  int64_t patience_ns = 0;
  int64_t quiet_wide_ns = 0;  // as `HostProber` takes it

  // Throws InvalidArgumentError naming the field.
  void check() const;
};

struct RunnerRounds {
  std::vector<std::vector<int64_t>> samples_ns;  // [round][sample], the dropped ones included
  std::vector<double> values_ns;                 // one a round
  std::vector<double> queued_ratios;             // one a round, as of `PartWaits`
  std::vector<int64_t> waited_ns;                // likewise; empty where the kernel does not say
  std::vector<KernelUse> kernel_use;             // likewise, of the samples that are not dropped
  std::vector<int> positions;                    // place in the random order of each round
  std::vector<int> rebuilt_rounds;               // that it was rebuilt in, at each attempt
  int dropped = 0;                               // first samples of each round, not counted
  WarmupReport warmup;
  int burst = 1;      // requests a sample; above 1 in throughput mode only
  std::string error;  // not empty: the runner failed and left the measurement after these rounds
};

struct RoundsResult {
  std::vector<RunnerRounds> runners;
  std::vector<HostProbe> probes;  // before each round, and after the last
  StopReason stop_reason = StopReason::kMaxRounds;
  int64_t elapsed_ns = 0;
};

// Called between rounds, never inside one: phase ("warmup", "round"), how many are done, of how
// many at most. The time spent in it counts towards no limit, so it may wait.
using Progress = std::function<void(const char* phase, int done, int total)>;

// Measures all runners. A runner that throws leaves the measurement with its error recorded and the
// others go on. Throws only if the plan is invalid, no runner is given, or throughput is asked of a
// runner that has to be prepared before each request.
//
// With `agree`, processes that are given the same plan, and runners of the same requests, measure
// them together. Each request begins on all of them at once. All make the same rounds, and have the
// same reason to stop; an interruption of one is one of all. Throws what a runner or `agree`
// throws.
[[nodiscard]] RoundsResult measure_rounds(const std::vector<std::shared_ptr<Runner>>& runners,
                                          const RoundPlan& plan, const Progress& progress = {},
                                          const Agree& agree = {});

}  // namespace ftax
