// A circular block bootstrap whose percentile interval is stretched about the mean by
// t / z * sqrt(k / (k - 1)), where k is the number of blocks. Hesterberg's expanded percentile
// interval has the same factor but moves outwards along the bootstrap distribution; with few blocks
// that asks for its outermost resamples, which do not reach far enough (5 rounds: 91 % instead of
// 95 %), so the factor is applied to the distances instead.
#include "core/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <string>

#include "core/error.h"

namespace ftax {
namespace {

void check_arguments(const RoundTable& table, std::span<const Contrast> contrasts,
                     const BootstrapOptions& options) {
  const int rounds = table.rounds();
  if (rounds < 2) {
    throw InvalidArgumentError("the table has " + std::to_string(rounds) +
                               " rounds; an interval needs at least 2");
  }
  if (!(options.confidence > 0.0 && options.confidence < 1.0)) {
    throw InvalidArgumentError("the confidence is " + std::to_string(options.confidence) +
                               "; it must lie strictly between 0 and 1, like 0.95");
  }
  const double needed = std::ceil(10.0 / (1.0 - options.confidence) - 1e-6);
  if (options.resamples < needed) {
    throw InvalidArgumentError("resamples is " + std::to_string(options.resamples) +
                               "; a confidence of " + std::to_string(options.confidence) +
                               " needs at least " + std::to_string(needed));
  }
  if (options.block < 0 || options.block > rounds / 2) {
    throw InvalidArgumentError("the block is " + std::to_string(options.block) + "; with " +
                               std::to_string(rounds) + " rounds it must lie between 1 and " +
                               std::to_string(rounds / 2) + ", or be 0 to have it chosen");
  }
  for (std::size_t i = 0; i < contrasts.size(); ++i) {
    if (contrasts[i].size() != static_cast<std::size_t>(table.columns)) {
      throw InvalidArgumentError("contrast " + std::to_string(i) + " has " +
                                 std::to_string(contrasts[i].size()) + " weights; the table has " +
                                 std::to_string(table.columns) + " columns");
    }
    for (const double weight : contrasts[i]) {
      if (!std::isfinite(weight)) {
        throw InvalidArgumentError("contrast " + std::to_string(i) + " has the weight " +
                                   std::to_string(weight) + "; weights must be finite");
      }
    }
  }
}

std::vector<double> compute_series(const RoundTable& table, const Contrast& contrast) {
  std::vector<double> series(static_cast<std::size_t>(table.rounds()), 0.0);
  for (int r = 0; r < table.rounds(); ++r) {
    for (int c = 0; c < table.columns; ++c) {
      series[static_cast<std::size_t>(r)] += contrast[static_cast<std::size_t>(c)] * table.at(r, c);
    }
  }
  return series;
}

double compute_mean(std::span<const double> series) {
  return std::accumulate(series.begin(), series.end(), 0.0) / static_cast<double>(series.size());
}

// sums[i] is the sum of the first i deviations of the series written twice, so that the sum of any
// block, wrapped around the end or not, is one subtraction.
std::vector<double> compute_running_sums(std::span<const double> series, double mean) {
  std::vector<double> sums;
  sums.reserve(2 * series.size() + 1);
  sums.push_back(0.0);
  for (int pass = 0; pass < 2; ++pass) {
    for (const double value : series) sums.push_back(sums.back() + (value - mean));
  }
  return sums;
}

// Deviations of resampled means from the mean of the series, ascending.
std::vector<double> resample_deviations(std::span<const double> running_sums, std::size_t rounds,
                                        std::size_t block, const BootstrapOptions& options) {
  // Not std::uniform_int_distribution: its draws differ between standard libraries, and a result
  // must be reproducible from its seed. The bias of a 32-bit multiply is below rounds / 2^32.
  std::mt19937_64 generator(options.seed);
  std::vector<double> deviations(static_cast<std::size_t>(options.resamples));
  for (double& deviation : deviations) {
    double sum = 0.0;
    for (std::size_t left = rounds; left > 0;) {
      const std::size_t start = ((generator() >> 32U) * rounds) >> 32U;
      const std::size_t length = std::min(block, left);
      sum += running_sums[start + length] - running_sums[start];
      left -= length;
    }
    deviation = sum / static_cast<double>(rounds);
  }
  std::sort(deviations.begin(), deviations.end());
  return deviations;
}

Interval compute_interval(std::span<const double> series, const BootstrapOptions& options) {
  const int block = options.block > 0 ? options.block : compute_block(series);
  const double mean = compute_mean(series);
  const std::vector<double> deviations = resample_deviations(
      compute_running_sums(series, mean), series.size(), static_cast<std::size_t>(block), options);
  const double tail = (1.0 - options.confidence) / 2.0;
  const double blocks = static_cast<double>(series.size()) / block;
  const double stretch = student_t_quantile(tail, blocks - 1.0) / normal_quantile(tail) *
                         std::sqrt(blocks / (blocks - 1.0));
  return {mean + stretch * compute_quantile(deviations, tail),
          mean + stretch * compute_quantile(deviations, 1.0 - tail)};
}

}  // namespace

int compute_block(std::span<const double> series) {
  const double rounds = static_cast<double>(series.size());
  const int longest = static_cast<int>(series.size() / 4);
  if (longest < 2) return 1;
  const double mean = compute_mean(series);
  double squares = 0.0;
  double products = 0.0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    squares += (series[i] - mean) * (series[i] - mean);
    if (i > 0) products += (series[i] - mean) * (series[i - 1] - mean);
  }
  if (squares == 0.0) return 1;
  // The sample autocorrelation is too small by (1 + 4 rho) / n (Marriott and Pope, 1954): at 20
  // rounds that would hide a rho of 0.1 altogether.
  const double biased = products / squares;
  const double rho = std::clamp(biased + (1.0 + 4.0 * biased) / rounds, 0.0, 0.95);
  // The length of least mean squared error for a circular block bootstrap (Politis and White, 2004,
  // as corrected by Patton, Politis and White, 2009) has a closed form if the series is AR(1).
  const double root = rho / (1.0 - rho * rho);
  const double length = std::ceil(std::cbrt(6.0 * root * root * rounds));
  return std::clamp(static_cast<int>(length), 1, longest);
}

std::vector<Interval> compute_joint_intervals(const RoundTable& table,
                                              std::span<const Contrast> contrasts,
                                              const BootstrapOptions& options) {
  check_arguments(table, contrasts, options);
  std::vector<Interval> intervals;
  intervals.reserve(contrasts.size());
  for (const Contrast& contrast : contrasts) {
    intervals.push_back(compute_interval(compute_series(table, contrast), options));
  }
  return intervals;
}

}  // namespace ftax
