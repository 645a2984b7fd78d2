// The t and normal distribution against printed tables and closed forms.
#include <cmath>
#include <limits>
#include <numbers>

#include "check.h"
#include "core/distributions.h"
#include "core/error.h"

namespace ftax {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(t_quantile_equals_the_printed_table) {
  struct Row {
    double probability, degrees_of_freedom, t;
  };
  // Three decimals, as every textbook prints them.
  const Row rows[] = {{0.975, 1, 12.706}, {0.975, 2, 4.303},   {0.975, 5, 2.571},
                      {0.975, 10, 2.228}, {0.975, 19, 2.093},  {0.975, 30, 2.042},
                      {0.975, 60, 2.000}, {0.975, 120, 1.980}, {0.975, kInfinity, 1.960},
                      {0.95, 1, 6.314},   {0.95, 10, 1.812},   {0.95, 30, 1.697},
                      {0.995, 1, 63.657}, {0.995, 10, 3.169},  {0.995, 120, 2.617},
                      {0.90, 3, 1.638},   {0.75, 4, 0.741},    {0.9995, 5, 6.869}};
  for (const Row& row : rows) {
    CHECK_NEAR(student_t_quantile(row.probability, row.degrees_of_freedom), row.t, 0.00051);
    CHECK_NEAR(student_t_quantile(1.0 - row.probability, row.degrees_of_freedom), -row.t, 0.00051);
  }
}

TEST(t_cdf_equals_closed_forms) {
  for (const double t : {-1e6, -40.0, -2.5, -1.0, -1e-3, 0.0, 1e-9, 0.3, 1.0, 3.0, 100.0}) {
    const double one = 0.5 + std::atan(t) / std::numbers::pi;
    const double two = 0.5 + t / (2.0 * std::sqrt(2.0 + t * t));
    const double s = 1.0 + t * t / 4.0;
    const double four = 0.5 + 0.375 * t / std::sqrt(s) * (1.0 - t * t / (12.0 * s));
    CHECK_NEAR(student_t_cdf(t, 1.0), one, 1e-14);
    CHECK_NEAR(student_t_cdf(t, 2.0), two, 1e-14);
    CHECK_NEAR(student_t_cdf(t, 4.0), four, 1e-14);
  }
}

TEST(far_tails_keep_their_digits) {
  // With 2 degrees of freedom the lower tail is 1 / (2 t^2) up to a relative error of 1.5 / t^2.
  CHECK_NEAR(student_t_cdf(-1e8, 2.0) * 2e16, 1.0, 1e-12);
  // Mills: the normal tail at 20 is pdf(20) / 20 * (1 - 1/400 + 3/400^2 - ...) = 2.7536e-89.
  CHECK_NEAR(normal_cdf(-20.0) / 2.7536241186062337e-89, 1.0, 1e-12);
}

TEST(t_quantile_inverts_the_cdf_for_real_degrees_of_freedom) {
  for (const double v : {0.4, 1.684, 2.5, 7.3, 41.9, 999.5, 123'456.7, 2e6}) {
    for (const double p : {1e-9, 0.001, 0.2, 0.4999, 0.5, 0.77, 0.999}) {
      CHECK_NEAR(student_t_cdf(student_t_quantile(p, v), v) / p, 1.0, 1e-10);
    }
  }
}

TEST(t_approaches_the_normal_without_a_step_where_the_formula_changes) {
  for (const double t : {0.1, 1.0, 2.0, 5.0}) {
    const double below = student_t_cdf(-t, 999'999.0);
    const double above = student_t_cdf(-t, 1'000'001.0);
    CHECK_NEAR(below / above, 1.0, 1e-8);
    CHECK_NEAR(student_t_cdf(-t, kInfinity), normal_cdf(-t), 1e-16);
  }
}

TEST(normal_quantile_equals_the_printed_table) {
  CHECK_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-14);
  CHECK_NEAR(normal_quantile(0.025), -1.959963984540054, 1e-14);
  CHECK_NEAR(normal_quantile(0.95), 1.6448536269514722, 1e-14);
  CHECK_NEAR(normal_quantile(0.995), 2.5758293035489004, 1e-14);
  CHECK_NEAR(normal_quantile(0.5), 0.0, 0.0);
}

TEST(impossible_arguments_are_named) {
  CHECK_THROWS(student_t_quantile(0.0, 5.0), InvalidArgumentError, "probability is 0.0");
  CHECK_THROWS(student_t_quantile(1.0, 5.0), InvalidArgumentError, "probability is 1.0");
  CHECK_THROWS(student_t_quantile(kNan, 5.0), InvalidArgumentError, "probability is nan");
  CHECK_THROWS(student_t_quantile(0.5, -1.0), InvalidArgumentError, "freedom are -1.0");
  CHECK_THROWS(student_t_cdf(1.0, 0.0), InvalidArgumentError, "freedom are 0.0");
  CHECK_THROWS(student_t_cdf(1.0, kNan), InvalidArgumentError, "freedom are nan");
  CHECK_THROWS(student_t_cdf(kNan, 5.0), InvalidArgumentError, "t is nan");
  CHECK_THROWS(normal_cdf(kNan), InvalidArgumentError, "z is nan");
  CHECK_THROWS(normal_quantile(1.5), InvalidArgumentError, "probability is 1.5");
}

}  // namespace
}  // namespace ftax
