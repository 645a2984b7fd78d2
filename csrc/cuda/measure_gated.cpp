// The end of a gate is the first event's time, so neither the gate nor the launch of the first
// kernel is in the span. A repetition counts as cut unless it was this file that opened the gate.
#include "cuda/measure_gated.h"

#include <c10/cuda/CUDAStream.h>

#include <cmath>

#include "core/clock.h"
#include "cuda/gate.h"
#include "cuda/launch_queue.h"

namespace ftax::cuda {
namespace {

constexpr int kUngatedRuns = 2;
constexpr int kOwnQueueEntries = 2;  // the two events; the probe counts behind its own gate
constexpr int64_t kMostWatchdogNs = 60'000'000'000;

std::string format_ms(int64_t time_ns) { return std::to_string(time_ns / 1'000'000) + " ms"; }

class GatedMeasurement {
 public:
  GatedMeasurement(Runner& runner, const GatePlan& plan)
      : runner_(runner),
        plan_(plan),
        stream_(c10::cuda::getCurrentCUDAStream().stream()),
        begin_(make_event()),
        end_(make_event()),
        gate_(plan.watchdog_ns) {}

  GateResult run() {
    GateResult result;
    for (int i = 0; i < kUngatedRuns; ++i) run_ungated();
    int cut = 0;
    for (int done = 0; done < plan_.repetitions; ++done) {
      result.repetitions.push_back(run_gated());
      cut += result.repetitions.back().cut ? 1 : 0;
      if (2 * cut > done + 1) break;
    }
    if (cut > 0) result.reason = explain_cut(cut, static_cast<int>(result.repetitions.size()));
    return result;
  }

 private:
  // Returns the host's time in enqueue().
  int64_t issue() {
    check(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord");
    const int64_t start_ns = now_ns();
    runner_.enqueue();
    const int64_t issued_ns = now_ns();
    check(cudaEventRecord(end_.get(), stream_), "cudaEventRecord");
    return issued_ns - start_ns;
  }

  void run_ungated() {
    runner_.prepare();
    static_cast<void>(issue());
    runner_.synchronize();
  }

  GatedRepetition run_gated() {
    runner_.prepare();
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    gate_.close(stream_);
    launch_blocked_ = gate_.was_cut();
    const int64_t issue_ns = issue();
    const int64_t opened_ns = now_ns();
    gate_.open();
    check(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    const int64_t drained_ns = now_ns();
    const bool cut = gate_.was_cut();
    runner_.synchronize();
    float span_ms = 0;
    check(cudaEventElapsedTime(&span_ms, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return {.issue_ns = issue_ns,
            .device_span_ns = std::llround(static_cast<double>(span_ms) * 1e6),
            .drain_ns = drained_ns - opened_ns,
            .cut = cut};
  }

  [[nodiscard]] std::string explain_cut(int cut, int done) const {
    const std::string what = std::to_string(cut) + " of " + std::to_string(done) +
                             " repetitions were cut: the gate opened by itself after " +
                             format_ms(plan_.watchdog_ns);
    if (launch_blocked_) {
      return what +
             ", because launching the gate waited for the device; unset "
             "CUDA_LAUNCH_BLOCKING, and detach profilers";
    }
    const std::string queue =
        plan_.launches.has_value() ? "" : ", issues more launches than the queue holds";
    return what + ", before everything was issued; " + runner_.name() +
           " waits for the device inside a request (a host read, memory that grows)" + queue +
           ", or takes longer than that to issue";
  }

  Runner& runner_;
  const GatePlan& plan_;
  cudaStream_t stream_;
  UniqueEvent begin_;
  UniqueEvent end_;
  bool launch_blocked_ = false;  // in the last repetition
  Gate gate_;                    // the last member: it opens before anything else goes
};

}  // namespace

void GatePlan::check() const {
  if (repetitions < 1) {
    throw InvalidArgumentError("repetitions is " + std::to_string(repetitions) +
                               "; give at least 1");
  }
  if (watchdog_ns < 1'000'000 || watchdog_ns > kMostWatchdogNs) {
    throw InvalidArgumentError("the watchdog is " + std::to_string(watchdog_ns) +
                               " ns; give 1 ms to " + format_ms(kMostWatchdogNs));
  }
  if (launches.has_value() && *launches < 0) {
    throw InvalidArgumentError("launches is " + std::to_string(*launches) +
                               "; it cannot be negative (leave it out if unknown)");
  }
}

GateResult measure_gated(Runner& runner, const GatePlan& plan) {
  plan.check();
  require_device();
  if (plan.launches.has_value()) {
    const int limit = probe_launch_queue();
    if (*plan.launches > limit - kOwnQueueEntries) {
      return {.repetitions = {},
              .reason = std::to_string(*plan.launches) + " launches a request do not fit in the " +
                        "launch queue, which holds " + std::to_string(limit) +
                        ": the host would wait for a device that the gate holds"};
    }
  }
  const auto scope = runner.enter();
  return GatedMeasurement(runner, plan).run();
}

}  // namespace ftax::cuda
