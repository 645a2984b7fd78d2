#include "core/slow_calls.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "core/error.h"
#include "core/round_table.h"

namespace ftax {
namespace {

constexpr size_t kFewestRounds = 10;  // of fewer nobody knows what happens now and then
constexpr double kLeastRatio = 0.05;  // of the latency, as two that are compared may differ
constexpr double kWaitCost = 1.5;     // of a wait: caches are cold after it

struct Round {
  std::span<const int64_t> samples_ns;
  double median_ns = 0;
  double waited_ns = 0;

  [[nodiscard]] double count() const { return static_cast<double>(samples_ns.size()); }
  // Without `waits` times the time waited.
  [[nodiscard]] double sum_ns(double waits) const {
    double sum_ns = -waits * waited_ns;
    for (const int64_t sample_ns : samples_ns) sum_ns += static_cast<double>(sample_ns);
    return sum_ns;
  }

  // Calls `body` with what each sample takes above the median, if it does.
  template <typename Body>
  void for_each_longer(Body body) const {
    for (const int64_t sample_ns : samples_ns) {
      const double more_ns = static_cast<double>(sample_ns) - median_ns;
      if (more_ns > 0) body(more_ns);
    }
  }
};

std::vector<Round> describe(std::span<const std::vector<int64_t>> rounds,
                            std::span<const int64_t> waited_ns) {
  if (rounds.size() != waited_ns.size()) {
    throw InvalidArgumentError("there are " + std::to_string(rounds.size()) + " rounds and " +
                               std::to_string(waited_ns.size()) +
                               " times waited; pass one of each");
  }
  std::vector<Round> described;
  for (size_t place = 0; place < rounds.size(); ++place) {
    if (waited_ns[place] < 0) {
      throw InvalidArgumentError("the time waited is " + std::to_string(waited_ns[place]) +
                                 " ns; it cannot be negative");
    }
    described.push_back({rounds[place], compute_median(std::span(rounds[place])),
                         static_cast<double>(waited_ns[place])});
  }
  return described;
}

// Whether the mean is above the median for certain, and by enough to be told.
bool is_above(const std::vector<Round>& rounds, const BootstrapOptions& options) {
  RoundTable table{.columns = 2, .values = {}};
  for (const Round& round : rounds) {
    const double mean_ns = round.sum_ns(kWaitCost) / round.count();
    table.add_round(std::array{round.median_ns, mean_ns - round.median_ns});
  }
  const double latency_ns = table.mean(0), least_ns = kLeastRatio * latency_ns;
  if (table.mean(1) <= least_ns) return false;
  const std::array<Contrast, 2> contrasts = {Contrast{1.0, 0.0}, Contrast{0.0, 1.0}};
  const auto intervals = compute_joint_intervals(table, contrasts, options);
  return intervals[1].low > std::max(least_ns, intervals[0].high - latency_ns);
}

SlowCalls describe_slow(const std::vector<Round>& rounds) {
  double count = 0, sum_ns = 0, waited_ns = 0, longer_ns = 0, squares = 0;
  for (const Round& round : rounds) {
    count += round.count();
    sum_ns += round.sum_ns(1.0);
    waited_ns += round.waited_ns;
    round.for_each_longer([&](double more_ns) {
      longer_ns += more_ns;
      squares += more_ns * more_ns;
    });
  }
  const double least_ns = squares / longer_ns / 2;
  double slow = 0, extra_ns = 0;
  for (const Round& round : rounds) {
    round.for_each_longer([&](double more_ns) {
      if (more_ns < least_ns) return;
      slow += 1;
      extra_ns += more_ns;
    });
  }
  const double own_ratio = std::max(0.0, 1 - waited_ns / longer_ns);
  return {sum_ns / count, slow / count, own_ratio * extra_ns / slow};
}

}  // namespace

std::optional<SlowCalls> find_slow_calls(std::span<const std::vector<int64_t>> rounds,
                                         std::span<const int64_t> waited_ns,
                                         const BootstrapOptions& options) {
  const std::vector<Round> described = describe(rounds, waited_ns);
  if (described.size() < kFewestRounds || !is_above(described, options)) return std::nullopt;
  return describe_slow(described);
}

}  // namespace ftax
