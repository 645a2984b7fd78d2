// Two clock reads around a virtual call, and nothing else between them. The cost of the reads is
// reported beside the results and not subtracted: subtracting it would hide its noise.
#include "measure/timed_loop.h"

#include <cstddef>

#include "core/clock.h"

namespace ftax {

const char* to_string(Mode mode) { return mode == Mode::kLatency ? "latency" : "throughput"; }

Request run_once(Runner& runner) {
  runner.prepare();
  Request request;
  request.begin_ns = now_ns();
  runner.enqueue();
  request.issued_ns = now_ns();
  runner.synchronize();
  request.end_ns = now_ns();
  return request;
}

std::vector<int64_t> time_latency(Runner& runner, int samples, HostProber* prober,
                                  SampleLimit limit) {
  // Sized before the loop and written once, so that no sample pays for a page fault.
  std::vector<int64_t> result(static_cast<std::size_t>(samples));
  const int64_t begin = now_ns();
  for (std::size_t i = 0; i < result.size(); ++i) {
    runner.prepare();
    const int64_t start = now_ns();
    runner.enqueue();
    runner.synchronize();
    const int64_t end = now_ns();
    result[i] = end - start;
    if (prober != nullptr) prober->look(end);
    if (limit.is_over(i + 1, end - begin)) result.resize(i + 1);
  }
  return result;
}

std::vector<int64_t> time_throughput(Runner& runner, int samples, int burst, HostProber* prober,
                                     SampleLimit limit) {
  std::vector<int64_t> result(static_cast<std::size_t>(samples));
  const int64_t begin = now_ns();
  for (std::size_t i = 0; i < result.size(); ++i) {
    const int64_t start = now_ns();
    for (int k = 0; k < burst; ++k) runner.enqueue();
    runner.synchronize();
    const int64_t end = now_ns();
    result[i] = (end - start) / burst;
    if (prober != nullptr) prober->look(end);
    if (limit.is_over(i + 1, end - begin)) result.resize(i + 1);
  }
  return result;
}

}  // namespace ftax
