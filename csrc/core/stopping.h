// When to stop measuring. Precision is looked at only at points declared before the first round:
// an interval that is watched until it looks narrow is no longer an interval of its level. The
// points are numbers of rounds that count: on a busy machine 20 rounds may be 7 that tell
// something.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/round_table.h"

namespace ftax {

enum class StopReason { kPrecise, kMaxRounds, kTimeLimit, kInterrupted, kFixedRounds, kFailed };

// "precise", "max-rounds", "time-limit", "interrupted", "fixed-rounds", "failed" (no runner
// was left).
[[nodiscard]] const char* to_string(StopReason reason);

struct StoppingRule {
  int min_rounds = 20;         // that count, before the first look
  int max_rounds = 200;        // of all rounds
  double target_ratio = 0.02;  // half-width of the interval over the mean, for each column
  double confidence = 0.95;
  int64_t time_limit_ns = 60'000'000'000;
  bool fixed = false;  // run max_rounds rounds, whatever the precision

  // Throws InvalidArgumentError naming the field.
  void check() const;

  // The numbers of rounds that count at which precision is looked at: min_rounds, then half as many
  // again each time, and max_rounds. {max_rounds} if fixed.
  [[nodiscard]] std::vector<int> compute_looks() const;
};

// The points of a rule as rounds come in.
class Looks {
 public:
  explicit Looks(const StoppingRule& rule) : points_(rule.compute_looks()) {}

  // Whether precision is to be looked at, now that `counted` rounds count: at the first round that
  // reaches a point, and after the last round of all if any point was reached.
  [[nodiscard]] bool is_due(int counted, bool is_last_round);

 private:
  std::vector<int> points_;
  size_t passed_ = 0;
};

// Whether every column's interval is as narrow as asked.
[[nodiscard]] bool is_precise(const RoundTable& table, const StoppingRule& rule, uint64_t seed);

}  // namespace ftax
