// Steady means that two windows in a row were not faster than the window before them. Only a fall
// counts: a machine that slows down for a moment is noise, a runner that still speeds up is
// warming.
#include "measure/warmup.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/clock.h"
#include "core/statistics.h"
#include "measure/timed_loop.h"

namespace ftax {
namespace {

constexpr int64_t kWindowNs = 20'000'000;
constexpr int kMinWindow = 2;
constexpr int kMaxWindow = 1000;

int choose_window(int64_t latency_ns) {
  const int64_t fits = kWindowNs / std::max<int64_t>(latency_ns, 1);
  return static_cast<int>(std::clamp<int64_t>(fits, kMinWindow, kMaxWindow));
}

int64_t compute_mean(std::span<const int64_t> samples_ns) {
  const auto sum_ns = std::accumulate(samples_ns.begin(), samples_ns.end(), int64_t{0});
  return sum_ns / static_cast<int64_t>(samples_ns.size());
}

}  // namespace

WarmupReport warm_up(Runner& runner, const WarmupPlan& plan, const Agree& agree) {
  const int64_t start = now_ns();
  const auto left_ns = [&] { return plan.limit_ns - agree_on(agree, now_ns() - start); };
  // What ends samples early is a clock.
  const auto take = [&](int samples, SampleLimit limit) {
    return time_latency(runner, samples, nullptr, agree ? SampleLimit{} : limit);
  };
  WarmupReport report;
  if (plan.iterations > 0) {
    const auto samples = take(plan.iterations, {plan.limit_ns});
    const size_t last = std::max<size_t>(samples.size() / 2, kMinWindow);
    const auto tail = std::span(samples).last(std::min(samples.size(), last));
    report.latency_ns = agree_on(agree, static_cast<int64_t>(compute_median(tail)));
    report.mean_ns = agree_on(agree, compute_mean(tail));
    report.iterations = static_cast<int>(samples.size());
    report.steady = report.iterations == plan.iterations;  // by decree
    report.elapsed_ns = now_ns() - start;
    return report;
  }
  report.latency_ns = report.mean_ns = agree_on(agree, time_latency(runner, 1).front());
  report.iterations = 1;
  int steady_windows = 0;
  while (!report.steady) {
    const int64_t rest_ns = left_ns();
    if (rest_ns <= kMinWindow * report.latency_ns) break;
    const auto samples = take(choose_window(report.latency_ns), {rest_ns, kMinWindow});
    const auto median = agree_on(agree, static_cast<int64_t>(compute_median(samples)));
    const double fall = 1.0 - static_cast<double>(median) /
                                  static_cast<double>(std::max<int64_t>(report.latency_ns, 1));
    steady_windows = fall <= plan.tolerance_ratio ? steady_windows + 1 : 0;
    report.latency_ns = median;
    const int64_t mean_ns = agree_on(agree, compute_mean(samples));
    report.mean_ns = report.iterations == 1 ? mean_ns : std::min(report.mean_ns, mean_ns);
    report.iterations += static_cast<int>(samples.size());
    report.steady = steady_windows >= 2 && report.iterations >= plan.min_iterations;
  }
  report.elapsed_ns = now_ns() - start;
  return report;
}

}  // namespace ftax
