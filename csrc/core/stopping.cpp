// The stopping rule and its points. The points grow by half each time, so a run has at most a
// handful of chances to stop by luck, and overshoots the rounds it needed by at most a half.
#include "core/stopping.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "core/bootstrap.h"
#include "core/error.h"

namespace ftax {

const char* to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kPrecise:
      return "precise";
    case StopReason::kMaxRounds:
      return "max-rounds";
    case StopReason::kTimeLimit:
      return "time-limit";
    case StopReason::kInterrupted:
      return "interrupted";
    case StopReason::kFixedRounds:
      return "fixed-rounds";
    case StopReason::kFailed:
      return "failed";
  }
  throw InvalidArgumentError("there is no stop reason " + std::to_string(static_cast<int>(reason)));
}

void StoppingRule::check() const {
  if (max_rounds < 2) {
    throw InvalidArgumentError("max_rounds is " + std::to_string(max_rounds) +
                               "; an interval needs at least 2 rounds");
  }
  if (!fixed && (min_rounds < 2 || min_rounds > max_rounds)) {
    throw InvalidArgumentError("min_rounds is " + std::to_string(min_rounds) +
                               "; it must lie between 2 and max_rounds (" +
                               std::to_string(max_rounds) + ")");
  }
  if (!(target_ratio > 0.0) || !std::isfinite(target_ratio)) {
    throw InvalidArgumentError("target_ratio is " + std::to_string(target_ratio) +
                               "; it must be above 0, like 0.02 for 2 % of the mean");
  }
  if (!(confidence > 0.0 && confidence < 1.0)) {
    throw InvalidArgumentError("confidence is " + std::to_string(confidence) +
                               "; it must lie strictly between 0 and 1, like 0.95");
  }
  if (time_limit_ns <= 0) {
    throw InvalidArgumentError("time_limit_ns is " + std::to_string(time_limit_ns) +
                               "; it must be above 0");
  }
}

std::vector<int> StoppingRule::compute_looks() const {
  check();
  if (fixed) return {max_rounds};
  std::vector<int> looks;
  // In 64 bits, because the step past max_rounds may not fit in an int.
  for (int64_t look = min_rounds; look < max_rounds; look += (look + 1) / 2) {
    looks.push_back(static_cast<int>(look));
  }
  looks.push_back(max_rounds);
  return looks;
}

bool Looks::is_due(int counted, bool is_last_round) {
  const size_t passed = passed_;
  while (passed_ < points_.size() && points_[passed_] <= counted) ++passed_;
  return passed_ > passed || (is_last_round && counted >= points_.front());
}

bool is_precise(const RoundTable& table, const StoppingRule& rule, uint64_t seed) {
  rule.check();
  const std::size_t columns = static_cast<std::size_t>(table.columns);
  std::vector<Contrast> means(columns, Contrast(columns, 0.0));
  for (std::size_t i = 0; i < columns; ++i) means[i][i] = 1.0;
  BootstrapOptions options{.confidence = rule.confidence, .seed = seed};
  options.resamples =
      std::max(options.resamples, static_cast<int>(std::ceil(10.0 / (1.0 - rule.confidence))));
  const std::vector<Interval> intervals = compute_joint_intervals(table, means, options);
  for (int i = 0; i < table.columns; ++i) {
    const Interval& interval = intervals[static_cast<std::size_t>(i)];
    const double half_width = (interval.high - interval.low) / 2.0;
    if (!(half_width <= rule.target_ratio * table.mean(i))) return false;
  }
  return true;
}

}  // namespace ftax
