// Order statistics and their binomial. The binomial is walked outwards from its centre, so a
// million samples cost a few thousand steps and no probability is ever a difference of two large
// sums.
#include "core/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace ftax {
namespace {

void check_not_empty(std::size_t count) {
  if (count == 0) throw InvalidArgumentError("there are 0 samples; pass at least 1");
}

void check_samples(std::span<const double> samples) {
  check_not_empty(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!std::isfinite(samples[i])) {
      throw InvalidArgumentError("sample " + std::to_string(i) + " is " +
                                 std::to_string(samples[i]) + "; samples must be finite");
    }
  }
}

void check_confidence(double confidence) {
  if (!(confidence > 0.0 && confidence < 1.0)) {
    throw InvalidArgumentError("the confidence is " + std::to_string(confidence) +
                               "; it must lie strictly between 0 and 1, like 0.95");
  }
}

template <typename T>
double find_median(std::vector<T> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  const double upper = static_cast<double>(*middle);
  if (samples.size() % 2 == 1) return upper;
  const double lower = static_cast<double>(*std::max_element(samples.begin(), middle));
  return std::midpoint(lower, upper);
}

double compute_mad_around(std::span<const double> samples, double median) {
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  for (const double sample : samples) deviations.push_back(std::abs(sample - median));
  return find_median(std::move(deviations));
}

struct OrderInterval {
  std::size_t rank;  // k, counted from 1: the interval is from x(k) to x(n + 1 - k)
  double confidence;
};

// The number of samples below the median is Binomial(n, 1/2), and the interval of rank k holds the
// median when that number is one of k .. n - k. Probabilities of both sides are added while k falls
// from the middle, where P = C(2m, m) / 4^m with m = ceil(n / 2) for even and odd n alike.
OrderInterval find_order_interval(std::size_t count, double confidence) {
  double probability = 1.0;
  for (std::size_t i = 1; i <= (count + 1) / 2; ++i) {
    probability *= 1.0 - 0.5 / static_cast<double>(i);
  }
  std::size_t rank = count / 2;
  double attained = count % 2 == 0 ? probability : 2.0 * probability;
  while (attained < confidence && rank > 1) {
    probability *= static_cast<double>(rank) / static_cast<double>(count - rank + 1);
    --rank;
    attained += 2.0 * probability;
  }
  if (rank == 0) return {1, 0.0};  // a single sample says nothing about the median's whereabouts
  return {rank, attained};
}

MedianInterval make_median_interval(std::span<const double> sorted, double confidence) {
  const OrderInterval order = find_order_interval(sorted.size(), confidence);
  return {.median = compute_quantile(sorted, 0.5),
          .interval = {sorted[order.rank - 1], sorted[sorted.size() - order.rank]},
          .confidence = order.confidence,
          .attained = order.confidence >= confidence};
}

}  // namespace

double compute_quantile(std::span<const double> sorted, double q) {
  check_samples(sorted);
  if (!(q >= 0.0 && q <= 1.0)) {
    throw InvalidArgumentError("the quantile asked for is " + std::to_string(q) +
                               "; it must lie between 0 and 1");
  }
  const auto unsorted = std::is_sorted_until(sorted.begin(), sorted.end());
  if (unsorted != sorted.end()) {
    throw InvalidArgumentError("sample " + std::to_string(unsorted - sorted.begin()) + " (" +
                               std::to_string(*unsorted) +
                               ") is below the one before it; sort the samples first");
  }
  const double position = q * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - std::floor(position));
}

double compute_median(std::span<const double> samples) {
  check_samples(samples);
  return find_median(std::vector<double>(samples.begin(), samples.end()));
}

double compute_median(std::span<const int64_t> samples) {
  check_not_empty(samples.size());
  return find_median(std::vector<int64_t>(samples.begin(), samples.end()));
}

MedianInterval compute_median_interval(std::span<const double> samples, double confidence) {
  check_samples(samples);
  check_confidence(confidence);
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return make_median_interval(sorted, confidence);
}

Interval compute_share_interval(int64_t hits, int64_t count, double confidence) {
  if (count <= 0 || hits < 0 || hits > count) {
    throw InvalidArgumentError(std::to_string(hits) + " of " + std::to_string(count) +
                               " samples is no share; pass 0 <= hits <= count, count > 0");
  }
  check_confidence(confidence);
  const double z = normal_quantile(0.5 + (confidence / 2));
  const double n = static_cast<double>(count);
  const double share = static_cast<double>(hits) / n;
  const double scale = 1 + (z * z / n);
  const double centre = (share + (z * z / (2 * n))) / scale;
  const double half = z * std::sqrt((share * (1 - share) / n) + (z * z / (4 * n * n))) / scale;
  return {.low = std::max(0.0, centre - half), .high = std::min(1.0, centre + half)};
}

Summary summarize(std::span<const int64_t> samples_ns) {
  constexpr double kConfidence = 0.95;
  check_not_empty(samples_ns.size());
  std::vector<double> sorted(samples_ns.begin(), samples_ns.end());
  std::sort(sorted.begin(), sorted.end());
  const MedianInterval median = make_median_interval(sorted, kConfidence);
  const double count = static_cast<double>(sorted.size());
  return {.count = static_cast<int64_t>(sorted.size()),
          .min = sorted.front(),
          .max = sorted.back(),
          .mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count,
          .p50 = median.median,
          .p90 = compute_quantile(sorted, 0.90),
          .p99 = compute_quantile(sorted, 0.99),
          .mad = compute_mad_around(sorted, median.median),
          .median = median};
}

}  // namespace ftax
