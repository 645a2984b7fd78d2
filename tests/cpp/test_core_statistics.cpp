// Order statistics against numbers worked out by hand.
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "core/statistics.h"
#include "processes.h"

namespace ftax {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> count_to(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(quantile_interpolates_as_type_7) {
  const std::vector<double> four = count_to(4);  // position = 3 q
  CHECK_NEAR(compute_quantile(four, 0.0), 1.0, 0.0);
  CHECK_NEAR(compute_quantile(four, 0.25), 1.75, 1e-15);
  CHECK_NEAR(compute_quantile(four, 0.5), 2.5, 1e-15);
  CHECK_NEAR(compute_quantile(four, 0.9), 3.7, 1e-15);
  CHECK_NEAR(compute_quantile(four, 1.0), 4.0, 0.0);
  const std::array<double, 1> one{7.0};
  CHECK_NEAR(compute_quantile(one, 0.3), 7.0, 0.0);
}

TEST(quantile_refuses_what_is_no_sorted_sample) {
  const std::vector<double> four = count_to(4);
  CHECK_THROWS(compute_quantile({}, 0.5), InvalidArgumentError, "0 samples");
  CHECK_THROWS(compute_quantile(four, -0.1), InvalidArgumentError, "is -0.1");
  CHECK_THROWS(compute_quantile(four, 1.1), InvalidArgumentError, "is 1.1");
  CHECK_THROWS(compute_quantile(four, kNan), InvalidArgumentError, "is nan");
  CHECK_THROWS(compute_quantile(std::array{1.0, kNan}, 0.5), InvalidArgumentError,
               "sample 1 is nan");
  CHECK_THROWS(compute_quantile(std::array{1.0, kInfinity}, 0.5), InvalidArgumentError,
               "sample 1 is inf");
  CHECK_THROWS(compute_quantile(std::array{2.0, 5.0, 3.0}, 0.5), InvalidArgumentError,
               "sample 2 (3.0");
}

TEST(median_is_the_middle_or_the_mean_of_the_two_middles) {
  CHECK_NEAR(compute_median(std::array{9.0}), 9.0, 0.0);
  CHECK_NEAR(compute_median(std::array{9.0, 1.0, 4.0}), 4.0, 0.0);
  CHECK_NEAR(compute_median(std::array{9.0, 1.0, 4.0, 5.0}), 4.5, 0.0);
  CHECK_NEAR(compute_median(std::array<int64_t, 4>{4, 1, 2, 9}), 3.0, 0.0);
  CHECK_NEAR(compute_median(std::array<int64_t, 3>{-5, 7, 7}), 7.0, 0.0);
  const int64_t huge = std::numeric_limits<int64_t>::max();  // the sum of two would overflow
  CHECK_NEAR(compute_median(std::array<int64_t, 2>{huge, huge}), 0x1.0p63, 0.0);
  CHECK_THROWS(compute_median(std::span<const double>{}), InvalidArgumentError, "0 samples");
  CHECK_THROWS(compute_median(std::span<const int64_t>{}), InvalidArgumentError, "0 samples");
  CHECK_THROWS(compute_median(std::array{kNan}), InvalidArgumentError, "sample 0 is nan");
}

TEST(median_leaves_its_input_alone) {
  const std::vector<double> before{3.0, 1.0, 2.0};
  std::vector<double> samples = before;
  CHECK_NEAR(compute_median(samples), 2.0, 0.0);
  CHECK(samples == before);
}

TEST(mad_is_the_median_distance_from_the_median) {
  // Median 2; distances 1 1 0 0 2 4 7; their median 1.
  CHECK_NEAR(summarize(std::array<int64_t, 7>{1, 1, 2, 2, 4, 6, 9}).mad, 1.0, 0.0);
  CHECK_NEAR(summarize(std::array<int64_t, 2>{5, 5}).mad, 0.0, 0.0);
}

TEST(median_interval_has_the_ranks_and_the_confidence_of_the_binomial) {
  // Rank 2 of 10: 1 - 2 (1 + 10) / 1024. Rank 3 adds 2 * 45 / 1024 of non-coverage.
  const MedianInterval ten = compute_median_interval(count_to(10), 0.95);
  CHECK_NEAR(ten.median, 5.5, 0.0);
  CHECK_NEAR(ten.interval.low, 2.0, 0.0);
  CHECK_NEAR(ten.interval.high, 9.0, 0.0);
  CHECK_NEAR(ten.confidence, 1002.0 / 1024.0, 1e-15);
  CHECK(ten.attained);
  const MedianInterval looser = compute_median_interval(count_to(10), 0.89);
  CHECK_NEAR(looser.interval.low, 3.0, 0.0);
  CHECK_NEAR(looser.interval.high, 8.0, 0.0);
  CHECK_NEAR(looser.confidence, 912.0 / 1024.0, 1e-15);
  // Rank 2 of 9, odd: 1 - 2 (1 + 9) / 512.
  const MedianInterval nine = compute_median_interval(count_to(9), 0.95);
  CHECK_NEAR(nine.interval.low, 2.0, 0.0);
  CHECK_NEAR(nine.interval.high, 8.0, 0.0);
  CHECK_NEAR(nine.confidence, 492.0 / 512.0, 1e-15);
}

TEST(median_interval_says_when_samples_are_too_few) {
  const MedianInterval six = compute_median_interval(count_to(6), 0.95);  // 1 - 2 / 64
  CHECK(six.attained);
  CHECK_NEAR(six.confidence, 0.96875, 1e-15);
  const MedianInterval five = compute_median_interval(count_to(5), 0.95);  // 1 - 2 / 32
  CHECK(!five.attained);
  CHECK_NEAR(five.confidence, 0.9375, 1e-15);
  CHECK_NEAR(five.interval.low, 1.0, 0.0);
  CHECK_NEAR(five.interval.high, 5.0, 0.0);
  const MedianInterval one = compute_median_interval(count_to(1), 0.95);
  CHECK(!one.attained);
  CHECK_NEAR(one.confidence, 0.0, 0.0);
  CHECK_NEAR(one.interval.low, 1.0, 0.0);
  CHECK_NEAR(one.interval.high, 1.0, 0.0);
}

TEST(median_interval_of_many_samples_agrees_with_the_normal_limit) {
  const int n = 1'000'001;
  const MedianInterval many = compute_median_interval(count_to(n), 0.95);
  const double half_width = 1.959964 * std::sqrt(n) / 2.0;
  CHECK_NEAR(many.median - many.interval.low, half_width, 2.0);
  CHECK_NEAR(many.interval.high - many.median, half_width, 2.0);
  CHECK(many.confidence >= 0.95);
  CHECK(many.confidence < 0.9505);
}

TEST(median_interval_refuses_an_impossible_confidence) {
  for (const double confidence : {0.0, 1.0, 95.0, kNan}) {
    CHECK_THROWS(compute_median_interval(count_to(9), confidence), InvalidArgumentError,
                 "the confidence is ");
  }
  CHECK_THROWS(compute_median_interval(count_to(9), 95.0), InvalidArgumentError, "95.0");
  CHECK_THROWS(compute_median_interval({}, 0.95), InvalidArgumentError, "0 samples");
}

TEST(median_interval_covers_as_often_as_it_says) {
  processes::Random random(1);
  const processes::Process heavy{.name = "", .heavy_tails = true};
  constexpr int kRuns = 4000;
  int covered = 0;
  double confidence = 0.0;
  for (int run = 0; run < kRuns; ++run) {
    const MedianInterval result = compute_median_interval(draw(heavy, 25, random), 0.95);
    covered += result.interval.low <= 1000.0 && 1000.0 <= result.interval.high ? 1 : 0;
    confidence = result.confidence;  // the same in each run: it depends on n alone
  }
  CHECK_NEAR(static_cast<double>(covered) / kRuns, confidence, 0.012);  // four standard errors
}

TEST(share_has_wilsons_interval) {
  // Newcombe (1998), Statistics in Medicine 17, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
  const struct {
    int64_t hits, count;
    double low, high;
  } published[] = {{81, 263, 0.2553, 0.3662},
                   {15, 148, 0.0624, 0.1605},
                   {0, 20, 0.0, 0.1611},
                   {1, 29, 0.0061, 0.1718}};
  for (const auto& [hits, count, low, high] : published) {
    const Interval interval = compute_share_interval(hits, count, 0.95);
    CHECK_NEAR(interval.low, low, 5e-5);
    CHECK_NEAR(interval.high, high, 5e-5);
  }
  CHECK_NEAR(compute_share_interval(20, 20, 0.95).high, 1.0, 0.0);
}

TEST(share_refuses_what_is_none) {
  CHECK_THROWS(compute_share_interval(0, 0, 0.95), InvalidArgumentError, "0 of 0 samples");
  CHECK_THROWS(compute_share_interval(3, 2, 0.95), InvalidArgumentError, "3 of 2 samples");
  CHECK_THROWS(compute_share_interval(-1, 2, 0.95), InvalidArgumentError, "-1 of 2 samples");
  CHECK_THROWS(compute_share_interval(1, 2, 1.0), InvalidArgumentError, "confidence");
}

TEST(summary_of_a_worked_example) {
  const std::array<int64_t, 5> samples_ns{100, 3, 1, 4, 2};
  const Summary summary = summarize(samples_ns);
  CHECK(summary.count == 5);
  CHECK_NEAR(summary.min, 1.0, 0.0);
  CHECK_NEAR(summary.max, 100.0, 0.0);
  CHECK_NEAR(summary.mean, 22.0, 1e-14);
  CHECK_NEAR(summary.p50, 3.0, 0.0);
  CHECK_NEAR(summary.p90, 61.6, 1e-13);   // position 3.6: 4 + 0.6 * 96
  CHECK_NEAR(summary.p99, 96.16, 1e-13);  // position 3.96
  CHECK_NEAR(summary.mad, 1.0, 0.0);      // distances 2 1 0 1 97
  CHECK_NEAR(summary.median.median, 3.0, 0.0);
  CHECK_NEAR(summary.median.confidence, 0.9375, 1e-15);
  CHECK_THROWS(summarize({}), InvalidArgumentError, "0 samples");
}

}  // namespace
}  // namespace ftax
