// Student's t from the incomplete beta function, whose continued fraction (DLMF 8.17.22) is summed
// by Lentz's method. Every tail is computed as a tail, never as one minus the rest, so that a
// p-value of 1e-30 is a number and not zero.
#include "core/distributions.h"

#include <math.h>  // lgamma_r is POSIX: std::lgamma writes a global and so races between threads

#include <cmath>
#include <limits>
#include <string>

#include "core/error.h"

namespace ftax {
namespace {

// Above this, Abramowitz and Stegun 26.7.8 is exact to about 1e-12, and the log-gammas below, which
// cancel, are not.
constexpr double kNearlyNormalDegreesOfFreedom = 1e6;

void check_probability(double probability) {
  if (!(probability > 0.0 && probability < 1.0)) {
    throw InvalidArgumentError("the probability is " + std::to_string(probability) +
                               "; a quantile exists strictly between 0 and 1");
  }
}

void check_degrees_of_freedom(double degrees_of_freedom) {
  if (!(degrees_of_freedom > 0.0)) {
    throw InvalidArgumentError("the degrees of freedom are " + std::to_string(degrees_of_freedom) +
                               "; they must be above 0");
  }
}

double log_gamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

double replace_zero(double x) { return x == 0.0 ? std::numeric_limits<double>::min() : x; }

// I_x(a, b); converges fast for x < (a + 1) / (a + b + 2).
double compute_incomplete_beta_fraction(double a, double b, double x) {
  constexpr int kMaxTerms = 20'000;  // about sqrt(max(a, b)) are needed
  constexpr double kPrecision = 1e-16;
  double c = 1.0;
  double d = 1.0 / replace_zero(1.0 - (a + b) * x / (a + 1.0));
  double fraction = d;
  for (int m = 1; m < kMaxTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double step = 1.0;
    for (const double term : {even, odd}) {
      d = 1.0 / replace_zero(1.0 + term * d);
      c = replace_zero(1.0 + term / c);
      step = c * d;
      fraction *= step;
    }
    if (std::abs(step - 1.0) < kPrecision) break;
  }
  const double log_front = a * std::log(x) + b * std::log1p(-x) + log_gamma(a + b) - log_gamma(a) -
                           log_gamma(b) - std::log(a);
  return std::exp(log_front) * fraction;
}

double compute_normal_tail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

// P(T > t) for t >= 0.
double compute_t_tail(double t, double degrees_of_freedom) {
  const double v = degrees_of_freedom;
  if (v > kNearlyNormalDegreesOfFreedom) {
    const double squared = std::isinf(v) ? 0.0 : t * t / (2.0 * v);
    return compute_normal_tail(t * (1.0 - 1.0 / (4.0 * v)) / std::sqrt(1.0 + squared));
  }
  // x = v / (v + t^2) and its complement, written so that neither overflows nor cancels.
  const double ratio = t / std::sqrt(v);
  const double x = 1.0 / (1.0 + ratio * ratio);
  if (x < (v / 2.0 + 1.0) / (v / 2.0 + 2.5)) {
    return x == 0.0 ? 0.0 : 0.5 * compute_incomplete_beta_fraction(v / 2.0, 0.5, x);
  }
  const double complement = ratio * ratio * x;
  if (complement == 0.0) return 0.5;
  return 0.5 - 0.5 * compute_incomplete_beta_fraction(0.5, v / 2.0, complement);
}

// The z >= 0 at which a falling tail(z) with tail(0) = 0.5 has come down to `probability`.
template <typename Tail>
double find_tail(Tail tail, double probability) {
  double low = 0.0;
  double high = 1.0;
  while (tail(high) > probability && high < std::numeric_limits<double>::max() / 2) {
    low = high;
    high *= 2.0;
  }
  for (int i = 0; i < 200; ++i) {
    const double middle = low + (high - low) / 2.0;
    if (middle <= low || middle >= high) break;
    (tail(middle) > probability ? low : high) = middle;
  }
  return high;
}

template <typename Tail>
double find_symmetric_quantile(Tail tail, double probability) {
  if (probability == 0.5) return 0.0;
  const bool lower = probability < 0.5;
  const double magnitude = find_tail(tail, lower ? probability : 1.0 - probability);
  return lower ? -magnitude : magnitude;
}

}  // namespace

double student_t_cdf(double t, double degrees_of_freedom) {
  check_degrees_of_freedom(degrees_of_freedom);
  if (std::isnan(t)) throw InvalidArgumentError("t is nan; pass a number");
  const double tail = compute_t_tail(std::abs(t), degrees_of_freedom);
  return t < 0.0 ? tail : 1.0 - tail;
}

double student_t_quantile(double probability, double degrees_of_freedom) {
  check_probability(probability);
  check_degrees_of_freedom(degrees_of_freedom);
  return find_symmetric_quantile([=](double t) { return compute_t_tail(t, degrees_of_freedom); },
                                 probability);
}

double normal_cdf(double z) {
  if (std::isnan(z)) throw InvalidArgumentError("z is nan; pass a number");
  return compute_normal_tail(-z);
}

double normal_quantile(double probability) {
  check_probability(probability);
  return find_symmetric_quantile(compute_normal_tail, probability);
}

}  // namespace ftax
