// Round tables and the intervals of their means: cases whose bootstrap distribution can be written
// down, invariants, and coverage by simulation.
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "check.h"
#include "core/bootstrap.h"
#include "core/error.h"
#include "core/round_table.h"
#include "processes.h"

namespace ftax {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// t / z for 95 % at one degree of freedom, times sqrt(2 / 1): two blocks.
constexpr double kStretchOfTwo = 12.7062047361747 / 1.959963984540054 * 1.4142135623730951;
// The same for four blocks: three degrees of freedom, sqrt(4 / 3).
constexpr double kStretchOfFour = 3.182446305284263 / 1.959963984540054 * 1.1547005383792515;

RoundTable make_table(const std::vector<std::vector<double>>& rounds) {
  RoundTable table{.columns = static_cast<int>(rounds.front().size()), .values = {}};
  for (const std::vector<double>& round : rounds) table.add_round(round);
  return table;
}

RoundTable make_column(const std::vector<double>& values) {
  return {.columns = 1, .values = values};
}

Interval compute_mean_interval(const std::vector<double>& values, const BootstrapOptions& options) {
  return compute_joint_intervals(make_column(values), std::vector<Contrast>{{1.0}}, options).at(0);
}

TEST(round_table_holds_rounds_row_by_row) {
  const RoundTable table = make_table({{1.0, 2.0}, {3.0, 5.0}, {5.0, 11.0}});
  CHECK(table.rounds() == 3);
  CHECK_NEAR(table.at(1, 0), 3.0, 0.0);
  CHECK_NEAR(table.at(2, 1), 11.0, 0.0);
  CHECK(table.column(1) == (std::vector<double>{2.0, 5.0, 11.0}));
  CHECK_NEAR(table.mean(0), 3.0, 0.0);
  CHECK_NEAR(table.mean(1), 6.0, 0.0);
  CHECK(RoundTable{}.rounds() == 0);
}

TEST(round_table_refuses_a_round_that_does_not_fit_and_stays_as_it_was) {
  RoundTable table = make_table({{1.0, 2.0}});
  CHECK_THROWS(table.add_round(std::vector{1.0}), InvalidArgumentError, "has 1 values");
  CHECK_THROWS(table.add_round(std::vector{1.0, kNan}), InvalidArgumentError, "column 1 is nan");
  CHECK(table.rounds() == 1);
  CHECK_THROWS(RoundTable{}.add_round(std::vector<double>{}), InvalidArgumentError, "0 columns");
  CHECK_THROWS(table.column(2), InvalidArgumentError, "no column 2");
  CHECK_THROWS(table.mean(-1), InvalidArgumentError, "no column -1");
  CHECK_THROWS((RoundTable{.columns = 1, .values = {}}.mean(0)), InvalidArgumentError, "0 rounds");
}

TEST(interval_of_two_rounds_is_the_stretched_range) {
  // Resampled means are 0, 1, 2 with probabilities 1/4, 1/2, 1/4, so the 2.5 % point is 0.
  const Interval interval = compute_mean_interval({0.0, 2.0}, {});
  CHECK_NEAR(interval.low, 1.0 - kStretchOfTwo, 1e-12);
  CHECK_NEAR(interval.high, 1.0 + kStretchOfTwo, 1e-12);
}

TEST(blocks_wrap_around_and_count_as_one_observation) {
  // Blocks of two start at 0..3 and have the means 1, 0, -1, 0 (the last wraps). The mean of two is
  // -1 with probability 1/16. As two blocks stretch further than four rounds, so does the interval.
  const std::vector<double> values{1.0, 1.0, -1.0, -1.0};
  const Interval blocks = compute_mean_interval(values, {.block = 2});
  CHECK_NEAR(blocks.low, -kStretchOfTwo, 1e-12);
  CHECK_NEAR(blocks.high, kStretchOfTwo, 1e-12);
  const Interval rounds = compute_mean_interval(values, {.block = 1});
  CHECK_NEAR(rounds.low, -kStretchOfFour, 1e-12);
  CHECK_NEAR(rounds.high, kStretchOfFour, 1e-12);
  // In the order + - + - every block of two has the mean 0.
  const Interval paired = compute_mean_interval({1.0, -1.0, 1.0, -1.0}, {.block = 2});
  CHECK_NEAR(paired.low, 0.0, 1e-12);
  CHECK_NEAR(paired.high, 0.0, 1e-12);
}

TEST(rounds_that_agree_have_an_interval_without_width) {
  const Interval interval = compute_mean_interval(std::vector<double>(30, 7.25), {});
  CHECK_NEAR(interval.low, 7.25, 0.0);
  CHECK_NEAR(interval.high, 7.25, 0.0);
}

TEST(a_difference_is_taken_within_each_round) {
  // Both columns wander by far more than they differ; the difference is 5 in every round.
  processes::Random random(3);
  RoundTable table{.columns = 2, .values = {}};
  for (int i = 0; i < 20; ++i) {
    const double shared = 1024.0 * (1.0 + i) + std::floor(100.0 * random.uniform());
    table.add_round(std::vector{shared + 5.0, shared});
  }
  const std::vector<Contrast> contrasts{{1.0, -1.0}, {1.0, 0.0}};
  const std::vector<Interval> intervals = compute_joint_intervals(table, contrasts, {});
  CHECK(intervals.size() == 2);
  CHECK_NEAR(intervals[0].low, 5.0, 1e-9);
  CHECK_NEAR(intervals[0].high, 5.0, 1e-9);
  CHECK(intervals[1].high - intervals[1].low > 1024.0);
}

TEST(intervals_shift_scale_and_mirror_with_the_rounds) {
  processes::Random random(4);
  const std::vector<double> values =
      draw({.name = "", .autocorrelation = 0.5, .heavy_tails = true}, 30, random);
  std::vector<double> moved;
  std::vector<double> mirrored;
  for (const double value : values) {
    moved.push_back(4.0 * value + 100.0);
    mirrored.push_back(-value);
  }
  const Interval base = compute_mean_interval(values, {.seed = 9});
  const Interval after = compute_mean_interval(moved, {.seed = 9});
  CHECK_NEAR(after.low, 4.0 * base.low + 100.0, 1e-8);
  CHECK_NEAR(after.high, 4.0 * base.high + 100.0, 1e-8);
  const Interval mirror = compute_mean_interval(mirrored, {.seed = 9});
  CHECK_NEAR(mirror.low, -base.high, 1e-8);
  CHECK_NEAR(mirror.high, -base.low, 1e-8);
}

TEST(draws_follow_from_the_seed_whatever_else_is_asked_and_in_any_thread) {
  processes::Random random(5);
  RoundTable table{.columns = 2, .values = {}};
  for (int i = 0; i < 25; ++i) table.add_round(std::vector{random.normal(), random.normal()});
  const std::vector<Contrast> both{{1.0, 0.0}, {1.0, -1.0}};
  const std::vector<Contrast> second{{1.0, -1.0}};
  const Interval expected = compute_joint_intervals(table, both, {.seed = 1}).at(1);
  const Interval other_seed = compute_joint_intervals(table, both, {.seed = 2}).at(1);
  CHECK(expected.low != other_seed.low);
  std::vector<Interval> alone(4);
  {
    std::vector<std::jthread> threads;
    for (Interval& result : alone) {
      threads.emplace_back(
          [&] { result = compute_joint_intervals(table, second, {.seed = 1}).at(0); });
    }
  }
  for (const Interval& interval : alone) {
    CHECK(interval.low == expected.low);
    CHECK(interval.high == expected.high);
  }
}

TEST(chosen_block_follows_the_autocorrelation) {
  std::vector<double> alternating;
  std::vector<double> fives;
  std::vector<double> step;
  for (int i = 0; i < 36; ++i) alternating.push_back(i % 2 == 0 ? 1.0 : -1.0);
  for (int i = 0; i < 40; ++i) fives.push_back(i / 5 % 2 == 0 ? 1.0 : -1.0);
  for (int i = 0; i < 20; ++i) step.push_back(i < 10 ? 0.0 : 1.0);
  CHECK(compute_block(alternating) == 1);
  // Lag products: 32 within fives less 7 between them: 25/40 = 0.625, corrected by (1 + 2.5) / 40
  // to 0.7125; cbrt(6 * (0.7125 / (1 - 0.5077))^2 * 40) = 7.95 (uncorrected: 6.3).
  CHECK(compute_block(fives) == 8);
  CHECK(compute_block(step) == 5);  // as long as a quarter allows
  CHECK(compute_block(std::vector<double>(20, 3.0)) == 1);
  CHECK(compute_block(std::vector<double>{1.0, 2.0, 3.0}) == 1);
  CHECK(compute_block({}) == 1);
}

TEST(impossible_arguments_are_named) {
  const RoundTable table = make_table({{1.0, 2.0}, {2.0, 3.0}, {3.0, 4.0}, {4.0, 5.0}});
  const std::vector<Contrast> good{{1.0, -1.0}};
  const auto compute = [&](const BootstrapOptions& options) {
    return compute_joint_intervals(table, good, options);
  };
  CHECK_THROWS(compute({.confidence = 1.0}), InvalidArgumentError, "confidence is 1.0");
  CHECK_THROWS(compute({.confidence = kNan}), InvalidArgumentError, "confidence is nan");
  CHECK_THROWS(compute({.resamples = 199}), InvalidArgumentError, "resamples is 199");
  CHECK(compute({.resamples = 200}).size() == 1);
  CHECK_THROWS(compute({.block = -1}), InvalidArgumentError, "block is -1");
  CHECK_THROWS(compute({.block = 3}), InvalidArgumentError, "block is 3");
  CHECK_THROWS(compute_joint_intervals(table, std::vector<Contrast>{{1.0}}, {}),
               InvalidArgumentError, "contrast 0 has 1 weights");
  CHECK_THROWS(compute_joint_intervals(table, std::vector<Contrast>{{1.0, kNan}}, {}),
               InvalidArgumentError, "weight nan");
  CHECK_THROWS(compute_joint_intervals(make_table({{1.0, 2.0}}), good, {}), InvalidArgumentError,
               "has 1 rounds");
  CHECK(compute_joint_intervals(table, {}, {}).empty());
}

double simulate_coverage(const processes::Process& process, int rounds, int block) {
  constexpr int kRuns = 1500;
  processes::Random random(17);
  const double truth = compute_truth(process, rounds, rounds);
  int covered = 0;
  for (int run = 0; run < kRuns; ++run) {
    const Interval interval = compute_mean_interval(
        draw(process, rounds, random),
        {.resamples = 500, .seed = static_cast<uint64_t>(run), .block = block});
    covered += interval.low <= truth && truth <= interval.high ? 1 : 0;
  }
  return static_cast<double>(covered) / kRuns;
}

// Four standard errors of 1500 runs are 2.3 points at 95 %.
TEST(independent_rounds_are_covered_at_the_nominal_level) {
  CHECK_NEAR(simulate_coverage({.name = ""}, 5, 0), 0.95, 0.023);
  CHECK_NEAR(simulate_coverage({.name = ""}, 20, 0), 0.95, 0.023);
  CHECK_NEAR(simulate_coverage({.name = ""}, 60, 0), 0.95, 0.023);
  CHECK_NEAR(simulate_coverage({.name = "", .heavy_tails = true}, 30, 0), 0.95, 0.028);
}

TEST(autocorrelated_rounds_need_the_chosen_block) {
  const processes::Process process{.name = "", .autocorrelation = 0.5};
  CHECK(simulate_coverage(process, 20, 0) > 0.86);
  CHECK(simulate_coverage(process, 60, 0) > 0.90);
  CHECK(simulate_coverage(process, 60, 1) < 0.80);  // or the block would not be worth its price
}

TEST(a_drift_makes_the_interval_of_its_mean_wider_not_wrong) {
  CHECK(simulate_coverage({.name = "", .drift_ratio = 0.06}, 20, 0) > 0.95);
  CHECK(simulate_coverage({.name = "", .drift_ratio = 0.06}, 60, 0) > 0.95);
}

}  // namespace
}  // namespace ftax
