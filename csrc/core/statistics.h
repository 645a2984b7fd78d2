// Descriptive statistics of samples. The interval around the median is an order-statistic interval:
// it assumes independent samples but no distribution, and it reports the confidence that it truly
// attains, because only a few levels exist when samples are few.
//
// Everything here throws InvalidArgumentError, naming the value, for empty input, input that is not
// finite, or a level out of range.
#pragma once

#include <cstdint>
#include <span>

#include "core/distributions.h"  // the t and normal distribution are part of this interface

namespace ftax {

struct Interval {
  double low;
  double high;
};

// Hyndman and Fan's type 7 (the default of numpy and R). `sorted` ascends; 0 <= q <= 1.
[[nodiscard]] double compute_quantile(std::span<const double> sorted, double q);

[[nodiscard]] double compute_median(std::span<const double> samples);
[[nodiscard]] double compute_median(std::span<const int64_t> samples);

struct MedianInterval {
  double median;
  Interval interval;
  double confidence;  // attained, from the binomial; at least what was asked for if `attained`
  bool attained;      // false: too few samples, and the interval is the whole range
};

// The narrowest interval between order statistics k and n + 1 - k that has the confidence.
[[nodiscard]] MedianInterval compute_median_interval(std::span<const double> samples,
                                                     double confidence);

// Of a share of which `count` independent samples found `hits`: Wilson's score interval.
[[nodiscard]] Interval compute_share_interval(int64_t hits, int64_t count, double confidence);

// All in the unit of the samples (ns), but for the count.
struct Summary {
  int64_t count;
  double min;
  double max;
  double mean;
  double p50;
  double p90;
  double p99;
  double mad;
  MedianInterval median;  // at 95 %
};

[[nodiscard]] Summary summarize(std::span<const int64_t> samples_ns);

}  // namespace ftax
