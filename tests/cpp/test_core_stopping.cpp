// The stopping rule: its points, its precision, and what stopping does to coverage.
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "core/bootstrap.h"
#include "core/error.h"
#include "core/stopping.h"
#include "processes.h"

namespace ftax {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(looks_grow_by_half_from_the_fewest_to_the_most_rounds) {
  CHECK((StoppingRule{}.compute_looks() == std::vector<int>{20, 30, 45, 68, 102, 153, 200}));
  CHECK((StoppingRule{.min_rounds = 2, .max_rounds = 5}.compute_looks() ==
         std::vector<int>{2, 3, 5}));
  CHECK((StoppingRule{.min_rounds = 20, .max_rounds = 20}.compute_looks() == std::vector<int>{20}));
  CHECK((StoppingRule{.min_rounds = 20, .max_rounds = 30}.compute_looks() ==
         std::vector<int>{20, 30}));
}

TEST(a_fixed_run_looks_once_and_ignores_the_fewest_rounds) {
  CHECK((StoppingRule{.max_rounds = 7, .fixed = true}.compute_looks() == std::vector<int>{7}));
}

TEST(looks_of_an_unbounded_run_do_not_overflow) {
  const std::vector<int> looks =
      StoppingRule{.max_rounds = std::numeric_limits<int>::max()}.compute_looks();
  CHECK(looks.back() == std::numeric_limits<int>::max());
  CHECK(looks.size() < 60);
  for (std::size_t i = 1; i < looks.size(); ++i) CHECK(looks[i] > looks[i - 1]);
}

TEST(looks_are_taken_when_as_many_rounds_count) {
  // Seven of the first twenty rounds count: no look, and none before twenty do.
  Looks looks({.min_rounds = 20, .max_rounds = 60});  // 20, 30, 45, 60
  CHECK(!looks.is_due(7, false));
  CHECK(!looks.is_due(19, false));
  CHECK(looks.is_due(20, false));
  CHECK(!looks.is_due(20, false));  // the round after it did not count
  CHECK(!looks.is_due(29, false));
  CHECK(looks.is_due(50, false));  // rounds that had not counted do now: one look for two points
  CHECK(!looks.is_due(31, false));
  CHECK(!looks.is_due(55, false));
  CHECK(looks.is_due(55, true));                                         // the end
  CHECK(!Looks({.min_rounds = 20, .max_rounds = 60}).is_due(19, true));  // but not of too few
}

TEST(impossible_rules_are_named) {
  const auto check = [](const StoppingRule& rule) { rule.check(); };
  CHECK_THROWS(check({.min_rounds = 1}), InvalidArgumentError, "min_rounds is 1");
  CHECK_THROWS(check({.min_rounds = 201}), InvalidArgumentError, "max_rounds (200)");
  CHECK_THROWS(check({.max_rounds = 1, .fixed = true}), InvalidArgumentError, "max_rounds is 1");
  CHECK_THROWS(check({.target_ratio = 0.0}), InvalidArgumentError, "target_ratio is 0.0");
  CHECK_THROWS(check({.target_ratio = kNan}), InvalidArgumentError, "target_ratio is nan");
  CHECK_THROWS(check({.confidence = 95.0}), InvalidArgumentError, "confidence is 95.0");
  CHECK_THROWS(check({.time_limit_ns = 0}), InvalidArgumentError, "time_limit_ns is 0");
  CHECK_THROWS((StoppingRule{.min_rounds = 0}.compute_looks()), InvalidArgumentError, "min_rounds");
}

TEST(stop_reasons_have_names) {
  CHECK(std::string(to_string(StopReason::kPrecise)) == "precise");
  CHECK(std::string(to_string(StopReason::kMaxRounds)) == "max-rounds");
  CHECK(std::string(to_string(StopReason::kTimeLimit)) == "time-limit");
  CHECK(std::string(to_string(StopReason::kInterrupted)) == "interrupted");
  CHECK(std::string(to_string(StopReason::kFixedRounds)) == "fixed-rounds");
  CHECK(std::string(to_string(StopReason::kFailed)) == "failed");
}

TEST(precise_means_half_width_over_mean_of_every_column) {
  // Two rounds of 99 and 101: half-width 9.168 on a mean of 100 (see test_core_bootstrap).
  RoundTable table{.columns = 1, .values = {99.0, 101.0}};
  CHECK(is_precise(table, {.target_ratio = 0.0917}, 0));
  CHECK(!is_precise(table, {.target_ratio = 0.0916}, 0));
  // A second column that is exact does not excuse the first, nor the other way round.
  table = {.columns = 2, .values = {99.0, 50.0, 101.0, 50.0}};
  CHECK(!is_precise(table, {.target_ratio = 0.0916}, 0));
  table = {.columns = 2, .values = {50.0, 99.0, 50.0, 101.0}};
  CHECK(!is_precise(table, {.target_ratio = 0.0916}, 0));
  CHECK(is_precise(table, {.target_ratio = 0.0917}, 0));
}

TEST(precision_works_at_high_confidence_and_refuses_too_few_rounds) {
  RoundTable table{.columns = 1, .values = std::vector<double>(20, 5.0)};
  CHECK(is_precise(table, {.confidence = 0.9999}, 0));
  table.values.resize(1);
  CHECK_THROWS(is_precise(table, {}, 0), InvalidArgumentError, "has 1 rounds");
}

struct Outcome {
  double coverage;
  double precise_share;
};

// Measures round by round as a real run would, looking only where the rule allows.
Outcome simulate_stopping(const processes::Process& process, const StoppingRule& rule) {
  constexpr int kRuns = 600;
  processes::Random random(23);
  int covered = 0;
  int precise = 0;
  for (int run = 0; run < kRuns; ++run) {
    const std::vector<double> values = draw(process, rule.max_rounds, random);
    const uint64_t seed = static_cast<uint64_t>(run);
    RoundTable table{.columns = 1, .values = {}};
    for (const int look : rule.compute_looks()) {
      table.values.assign(values.begin(), values.begin() + look);
      if (!is_precise(table, rule, seed)) continue;
      ++precise;
      break;
    }
    const double truth = compute_truth(process, table.rounds(), rule.max_rounds);
    const Interval interval =
        compute_joint_intervals(table, std::vector<Contrast>{{1.0}}, {.seed = seed}).at(0);
    covered += interval.low <= truth && truth <= interval.high ? 1 : 0;
  }
  return {static_cast<double>(covered) / kRuns, static_cast<double>(precise) / kRuns};
}

// Three standard errors of 600 runs are 2.7 points at 95 %; stopping itself may cost one more.
TEST(stopping_at_declared_looks_keeps_the_coverage) {
  const Outcome steady = simulate_stopping({.name = "", .noise_ratio = 0.04}, {});
  CHECK(steady.coverage > 0.913);
  CHECK(steady.precise_share > 0.9);
  const Outcome drifting =
      simulate_stopping({.name = "", .noise_ratio = 0.04, .drift_ratio = 0.06}, {});
  CHECK(drifting.coverage > 0.913);
  CHECK(drifting.precise_share > 0.5);  // else nothing was tested about stopping
}

}  // namespace
}  // namespace ftax
