// Tails and quantiles of the normal and Student's t distribution. Quantiles are found by bisecting
// the tail itself instead of by a rational approximation: fifty evaluations are nothing next to a
// measurement, and one implementation of the tail is then the only thing that can be wrong.
#pragma once

namespace ftax {

// P(T <= t). degrees_of_freedom > 0, real-valued (Welch's are), infinity means normal.
[[nodiscard]] double student_t_cdf(double t, double degrees_of_freedom);

// The t with student_t_cdf(t) == probability; 0 < probability < 1.
[[nodiscard]] double student_t_quantile(double probability, double degrees_of_freedom);

[[nodiscard]] double normal_cdf(double z);

// 0 < probability < 1.
[[nodiscard]] double normal_quantile(double probability);

}  // namespace ftax
