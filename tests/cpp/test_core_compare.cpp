// Comparisons whose logarithms are small integers, so that the tests can be done by hand; verdicts
// at and around their borders; and how often two runs of the same thing are told apart.
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "check.h"
#include "core/compare.h"
#include "core/error.h"
#include "processes.h"

namespace ftax {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> exponentiate(std::vector<double> logs) {
  for (double& value : logs) value = std::exp(value);
  return logs;
}

TEST(paired_comparison_of_a_worked_example) {
  // Log ratios 1 and 3: mean 2, standard error 1, one degree of freedom, where
  // P(|T| > 2) = 1 - 2 atan(2) / pi and t(0.975) = 12.706.
  const Comparison result =
      compare_paired(exponentiate({0.0, 1.0}), exponentiate({1.0, 4.0}), 0.02, 0.95, 0.0);
  CHECK_NEAR(result.ratio, std::exp(2.0), 1e-12);
  CHECK_NEAR(std::log(result.ratio_interval.low), 2.0 - 12.7062047361747, 1e-11);
  CHECK_NEAR(std::log(result.ratio_interval.high), 2.0 + 12.7062047361747, 1e-11);
  CHECK_NEAR(result.degrees_of_freedom, 1.0, 0.0);
  CHECK_NEAR(result.margin, 0.02, 0.0);
  CHECK(result.units_a == 2 && result.units_b == 2);
  CHECK(result.verdict == Verdict::kCannotTell);
  CHECK(result.method == "paired t on log ratios");
}

TEST(unpaired_comparison_of_a_worked_example) {
  // a: mean 1, variance 1, 3 units: 1/3. b: mean 4, variance 2, 2 units: 1. Difference 3, squared
  // error 4/3, degrees of freedom (4/3)^2 / ((1/3)^2 / 2 + 1^2 / 1) = 32/19.
  const Comparison result =
      compare_unpaired(exponentiate({0.0, 1.0, 2.0}), exponentiate({3.0, 5.0}), 0.02, 0.95, 0.0);
  const double half_width = student_t_quantile(0.975, 32.0 / 19.0) * std::sqrt(4.0 / 3.0);
  CHECK_NEAR(result.ratio, std::exp(3.0), 1e-11);
  CHECK_NEAR(result.degrees_of_freedom, 32.0 / 19.0, 1e-12);
  CHECK_NEAR(std::log(result.ratio_interval.low), 3.0 - half_width, 1e-11);
  CHECK_NEAR(std::log(result.ratio_interval.high), 3.0 + half_width, 1e-11);
  CHECK(result.units_a == 3 && result.units_b == 2);
  CHECK(result.method == "Welch's t on logs");
}

TEST(verdict_depends_on_where_the_interval_lies) {
  const std::vector<double> a{100.0, 200.0, 300.0, 400.0};
  const auto compare = [&](double ratio, double spread, double margin) {
    std::vector<double> b;
    for (std::size_t i = 0; i < a.size(); ++i) {
      b.push_back(a[i] * ratio * (i % 2 == 0 ? 1.0 + spread : 1.0 / (1.0 + spread)));
    }
    return compare_paired(a, b, margin, 0.95, 0.0).verdict;
  };
  CHECK(compare(0.8, 0.01, 0.02) == Verdict::kFaster);
  CHECK(compare(1.25, 0.01, 0.02) == Verdict::kSlower);
  CHECK(compare(1.001, 0.003, 0.02) == Verdict::kEqual);
  CHECK(compare(1.001, 0.03, 0.02) == Verdict::kCannotTell);          // too wide for the margin
  CHECK(compare(1.015, 0.0087, 0.02) == Verdict::kCannotTell);        // out of it at the upper end
  CHECK(compare(1.0 / 1.015, 0.0087, 0.02) == Verdict::kCannotTell);  // and at the lower
  CHECK(compare(1.001, 0.003, 0.0) == Verdict::kCannotTell);          // nothing is exactly equal
}

TEST(a_difference_within_the_margin_is_still_a_difference) {
  // The interval excludes 1, so it is slower, however little; the margin only guards "equal".
  const std::vector<double> a{1000.0, 1000.0, 1000.0, 1000.0};
  const std::vector<double> b{1010.0, 1010.5, 1010.0, 1010.5};
  CHECK(compare_paired(a, b, 0.05, 0.95, 0.0).verdict == Verdict::kSlower);
}

TEST(a_difference_counts_only_if_the_whole_interval_is_beyond_the_least_one) {
  // Log ratios 0.02 and 0.03, four times: mean 0.025, standard error 0.005 / sqrt(7) = 0.00189, and
  // t(0.975, 7) = 2.3646: the interval is exp(0.02053) to exp(0.02947), 1.0207 to 1.0299.
  const std::vector<double> a(8, 1000.0);
  std::vector<double> b;
  for (int i = 0; i < 8; ++i) b.push_back(1000.0 * std::exp(i % 2 == 0 ? 0.02 : 0.03));
  CHECK_NEAR(compare_paired(a, b, 0.05, 0.95, 0.0).ratio_interval.low, 1.0207, 1e-4);
  CHECK(compare_paired(a, b, 0.05, 0.95, 0.020).verdict == Verdict::kSlower);
  CHECK(compare_paired(b, a, 0.05, 0.95, 0.020).verdict == Verdict::kFaster);
  CHECK(compare_paired(a, b, 0.05, 0.95, 0.022).verdict == Verdict::kEqual);  // within the margin
  CHECK(compare_paired(a, b, 0.025, 0.95, 0.022).verdict == Verdict::kCannotTell);
  CHECK_THROWS(compare_paired(a, b, 0.05, 0.95, -1.0), InvalidArgumentError,
               "the least difference is -1.0");
}

TEST(sides_without_variance_are_compared_exactly) {
  const std::vector<double> same{128.0, 128.0, 128.0};
  const std::vector<double> twice{256.0, 256.0, 256.0};
  for (const auto compare : {&compare_paired, &compare_unpaired}) {
    const Comparison equal = compare(same, same, 0.0, 0.95, 0.0);
    CHECK(equal.verdict == Verdict::kEqual);
    CHECK_NEAR(equal.ratio_interval.low, 1.0, 0.0);
    CHECK_NEAR(equal.ratio_interval.high, 1.0, 0.0);
    const Comparison slower = compare(same, twice, 0.02, 0.95, 0.0);
    CHECK(slower.verdict == Verdict::kSlower);
    CHECK_NEAR(slower.ratio, 2.0, 1e-15);
    CHECK(compare(twice, same, 0.02, 0.95, 0.0).verdict == Verdict::kFaster);
  }
  CHECK_NEAR(compare_unpaired(same, same, 0.0, 0.95, 0.0).degrees_of_freedom, 4.0, 0.0);
  // One side alone without variance leaves the other's degrees of freedom.
  const std::vector<double> noisy{100.0, 130.0, 150.0, 120.0};
  CHECK_NEAR(compare_unpaired(same, noisy, 0.0, 0.95, 0.0).degrees_of_freedom, 3.0, 1e-12);
}

TEST(swapping_the_sides_gives_the_reciprocal) {
  const std::vector<double> a{100.0, 103.0, 99.0, 101.0};
  const std::vector<double> b{110.0, 108.0, 113.0, 109.0};
  for (const auto compare : {&compare_paired, &compare_unpaired}) {
    const Comparison forward = compare(a, b, 0.02, 0.95, 0.0);
    const Comparison backward = compare(b, a, 0.02, 0.95, 0.0);
    CHECK_NEAR(forward.ratio * backward.ratio, 1.0, 1e-14);
    CHECK_NEAR(forward.ratio_interval.low * backward.ratio_interval.high, 1.0, 1e-14);
    CHECK(forward.verdict == Verdict::kSlower);
    CHECK(backward.verdict == Verdict::kFaster);
  }
}

TEST(pairing_removes_what_both_sides_felt) {
  const std::vector<double> a{100.0, 200.0, 400.0, 800.0};
  const std::vector<double> b{110.0, 221.0, 439.0, 880.0};
  CHECK(compare_paired(a, b, 0.02, 0.95, 0.0).verdict == Verdict::kSlower);
  CHECK(compare_unpaired(a, b, 0.02, 0.95, 0.0).verdict == Verdict::kCannotTell);
}

TEST(impossible_arguments_are_named) {
  const std::vector<double> one{1.0};
  const std::vector<double> two{1.0, 2.0};
  const std::vector<double> three{1.0, 2.0, 3.0};
  CHECK_THROWS(compare_paired(one, two, 0.0, 0.95, 0.0), InvalidArgumentError,
               "side a has 1 units; a comparison needs at least 2");
  CHECK_THROWS(compare_unpaired(two, {}, 0.0, 0.95, 0.0), InvalidArgumentError,
               "side b has 0 units");
  CHECK_THROWS(compare_paired(two, three, 0.0, 0.95, 0.0), InvalidArgumentError, "side b 3");
  CHECK_THROWS(compare_unpaired(two, std::vector{1.0, 0.0}, 0.0, 0.95, 0.0), InvalidArgumentError,
               "unit 1 of side b took 0.0");
  CHECK_THROWS(compare_paired(std::vector{kNan, 1.0}, two, 0.0, 0.95, 0.0), InvalidArgumentError,
               "unit 0 of side a took nan");
  CHECK_THROWS(compare_paired(two, two, -0.1, 0.95, 0.0), InvalidArgumentError, "margin is -0.1");
  CHECK_THROWS(compare_paired(two, two, kNan, 0.95, 0.0), InvalidArgumentError, "margin is nan");
  CHECK_THROWS(compare_unpaired(two, two, 0.1, 1.0, 0.0), InvalidArgumentError,
               "confidence is 1.0");
}

TEST(verdicts_have_names) {
  CHECK(std::string(to_string(Verdict::kFaster)) == "faster");
  CHECK(std::string(to_string(Verdict::kSlower)) == "slower");
  CHECK(std::string(to_string(Verdict::kEqual)) == "equal");
  CHECK(std::string(to_string(Verdict::kCannotTell)) == "cannot-tell");
}

TEST(the_same_thing_measured_twice_is_told_apart_one_time_in_twenty) {
  constexpr int kRuns = 4000;
  processes::Random random(29);
  const processes::Process process{.name = ""};
  int paired_apart = 0;
  int unpaired_apart = 0;
  int unpaired_equal = 0;
  for (int run = 0; run < kRuns; ++run) {
    const std::vector<double> a = draw(process, 6, random);
    const std::vector<double> b = draw(process, 9, random);
    const std::vector<double> beside_a(b.begin(), b.begin() + 6);
    const Verdict paired = compare_paired(a, beside_a, 0.02, 0.95, 0.0).verdict;
    const Verdict unpaired = compare_unpaired(a, b, 0.2, 0.95, 0.0).verdict;
    paired_apart += paired == Verdict::kFaster || paired == Verdict::kSlower ? 1 : 0;
    unpaired_apart += unpaired == Verdict::kFaster || unpaired == Verdict::kSlower ? 1 : 0;
    unpaired_equal += unpaired == Verdict::kEqual ? 1 : 0;
  }
  CHECK_NEAR(static_cast<double>(paired_apart) / kRuns, 0.05, 0.014);  // four standard errors
  CHECK_NEAR(static_cast<double>(unpaired_apart) / kRuns, 0.05, 0.014);
  CHECK_NEAR(static_cast<double>(unpaired_equal) / kRuns, 0.95, 0.014);  // a margin far above noise
}

}  // namespace
}  // namespace ftax
