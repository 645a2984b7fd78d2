// The two tests, which differ only in how they get at a standard error and its degrees of freedom,
// and the verdict. A verdict of equal has to be earned: an interval that merely includes 1 is
// "cannot tell" until it also lies within the margin.
#include "core/compare.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/error.h"

namespace ftax {
namespace {

void check_options(double margin, double confidence, double least) {
  if (!(margin >= 0.0) || !std::isfinite(margin)) {
    throw InvalidArgumentError("the margin is " + std::to_string(margin) +
                               "; it must be 0 or above, like 0.02 for 2 %");
  }
  if (!(least >= 0.0) || !std::isfinite(least)) {
    throw InvalidArgumentError("the least difference is " + std::to_string(least) +
                               "; it must be 0 or above, like 0.01 for 1 %");
  }
  if (!(confidence > 0.0 && confidence < 1.0)) {
    throw InvalidArgumentError("the confidence is " + std::to_string(confidence) +
                               "; it must lie strictly between 0 and 1, like 0.95");
  }
}

void check_side(const char* side, std::span<const double> values_ns) {
  if (values_ns.size() < 2) {
    throw InvalidArgumentError(std::string("side ") + side + " has " +
                               std::to_string(values_ns.size()) +
                               " units; a comparison needs at least 2 a side");
  }
  for (std::size_t i = 0; i < values_ns.size(); ++i) {
    if (!(values_ns[i] > 0.0) || !std::isfinite(values_ns[i])) {
      throw InvalidArgumentError("unit " + std::to_string(i) + " of side " + side + " took " +
                                 std::to_string(values_ns[i]) +
                                 " ns; a ratio needs finite times above 0");
    }
  }
}

struct Moments {
  double mean;
  double squared_error;  // of the mean: variance / n
  double degrees_of_freedom;
};

Moments compute_moments(std::span<const double> values) {
  const double count = static_cast<double>(values.size());
  double sum = 0.0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, squares / (count - 1.0) / count, count - 1.0};
}

std::vector<double> compute_logs(std::span<const double> values) {
  std::vector<double> logs;
  logs.reserve(values.size());
  for (const double value : values) logs.push_back(std::log(value));
  return logs;
}

Moments subtract(const Moments& b, const Moments& a) {
  const double squared_error = a.squared_error + b.squared_error;
  // Welch and Satterthwaite's formula is 0 / 0 if no unit differs from another on either side.
  double degrees_of_freedom = a.degrees_of_freedom + b.degrees_of_freedom;
  if (squared_error > 0.0) {
    const double share_a = a.squared_error / squared_error;
    const double share_b = b.squared_error / squared_error;
    degrees_of_freedom =
        1.0 / (share_a * share_a / a.degrees_of_freedom + share_b * share_b / b.degrees_of_freedom);
  }
  return {b.mean - a.mean, squared_error, degrees_of_freedom};
}

Verdict decide(const Interval& ratio, double margin, double least) {
  if (ratio.high < 1.0 / (1.0 + least)) return Verdict::kFaster;
  if (ratio.low > 1.0 + least) return Verdict::kSlower;
  const bool within = ratio.low >= 1.0 / (1.0 + margin) && ratio.high <= 1.0 + margin;
  return within ? Verdict::kEqual : Verdict::kCannotTell;
}

Comparison make_comparison(const Moments& log_ratio, double margin, double confidence,
                           double least) {
  const double t = student_t_quantile((1.0 + confidence) / 2.0, log_ratio.degrees_of_freedom);
  const double half_width = t * std::sqrt(log_ratio.squared_error);
  const Interval interval{std::exp(log_ratio.mean - half_width),
                          std::exp(log_ratio.mean + half_width)};
  Comparison comparison{};
  comparison.ratio = std::exp(log_ratio.mean);
  comparison.ratio_interval = interval;
  comparison.margin = margin;
  comparison.verdict = decide(interval, margin, least);
  comparison.degrees_of_freedom = log_ratio.degrees_of_freedom;
  return comparison;
}

}  // namespace

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFaster:
      return "faster";
    case Verdict::kSlower:
      return "slower";
    case Verdict::kEqual:
      return "equal";
    case Verdict::kCannotTell:
      return "cannot-tell";
  }
  throw InvalidArgumentError("there is no verdict " + std::to_string(static_cast<int>(verdict)));
}

Comparison compare_paired(std::span<const double> a_ns, std::span<const double> b_ns, double margin,
                          double confidence, double least) {
  check_options(margin, confidence, least);
  check_side("a", a_ns);
  check_side("b", b_ns);
  if (a_ns.size() != b_ns.size()) {
    throw InvalidArgumentError("side a has " + std::to_string(a_ns.size()) + " units and side b " +
                               std::to_string(b_ns.size()) +
                               "; pairs need as many of each, or compare them unpaired");
  }
  std::vector<double> log_ratios;
  log_ratios.reserve(a_ns.size());
  for (std::size_t i = 0; i < a_ns.size(); ++i) log_ratios.push_back(std::log(b_ns[i] / a_ns[i]));
  Comparison comparison = make_comparison(compute_moments(log_ratios), margin, confidence, least);
  comparison.units_a = static_cast<int>(a_ns.size());
  comparison.units_b = static_cast<int>(b_ns.size());
  comparison.method = "paired t on log ratios";
  return comparison;
}

Comparison compare_unpaired(std::span<const double> a_ns, std::span<const double> b_ns,
                            double margin, double confidence, double least) {
  check_options(margin, confidence, least);
  check_side("a", a_ns);
  check_side("b", b_ns);
  const Moments log_ratio =
      subtract(compute_moments(compute_logs(b_ns)), compute_moments(compute_logs(a_ns)));
  Comparison comparison = make_comparison(log_ratio, margin, confidence, least);
  comparison.units_a = static_cast<int>(a_ns.size());
  comparison.units_b = static_cast<int>(b_ns.size());
  comparison.method = "Welch's t on logs";
  return comparison;
}

}  // namespace ftax
