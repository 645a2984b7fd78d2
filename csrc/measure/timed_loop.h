// The timed loop. Everything that ftax reports as a time was taken by one of these functions. What
// a request is, they have in common: prepared outside its time, issued, waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "measure/host_probe.h"
#include "measure/runner.h"

namespace ftax {

enum class Mode {
  kLatency,     // one synchronised request a sample
  kThroughput,  // requests back to back, one synchronise a sample
};

[[nodiscard]] const char* to_string(Mode mode);

// One request, by the host's clock.
struct Request {
  int64_t begin_ns = 0;   // after prepare(), before enqueue()
  int64_t issued_ns = 0;  // after enqueue()
  int64_t end_ns = 0;     // after synchronize()
};

// One request, for whoever looks at it by other means than its time. The caller holds the runner's
// scope.
Request run_once(Runner& runner);

// An end before all samples are taken: after `time_ns`, once there are `least`. What was sized by
// requests of 5 us must not go on for half a minute when they take 15 ms.
struct SampleLimit {
  int64_t time_ns = std::numeric_limits<int64_t>::max();
  int least = 1;

  [[nodiscard]] bool is_over(size_t taken, int64_t spent_ns) const {
    return spent_ns > time_ns && taken >= static_cast<size_t>(least);
  }
};

// Latency of `samples` requests, in ns each; prepare() runs before each of them and is not in it.
// The caller holds the runner's scope. With a `prober`, it looks at the host between samples.
[[nodiscard]] std::vector<int64_t> time_latency(Runner& runner, int samples,
                                                HostProber* prober = nullptr,
                                                SampleLimit limit = {});

// Time per request, in ns, of `samples` bursts of `burst` requests each. The remainder of the
// division by `burst` is dropped: it is less than 1 ns. prepare() is not called: the caller refuses
// a runner that needs it.
[[nodiscard]] std::vector<int64_t> time_throughput(Runner& runner, int samples, int burst,
                                                   HostProber* prober = nullptr,
                                                   SampleLimit limit = {});

}  // namespace ftax
