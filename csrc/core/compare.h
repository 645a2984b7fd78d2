// Whether b is faster than a, from one number per independent unit (a round, or a process). Times
// are compared as ratios, so the tests run on logarithms: what is reported is a ratio of geometric
// means, which lies inside its own interval, and swapping a and b gives exactly the reciprocal.
#pragma once

#include <span>
#include <string>

#include "core/statistics.h"

namespace ftax {

enum class Verdict { kFaster, kSlower, kEqual, kCannotTell };

// "faster", "slower", "equal", "cannot-tell".
[[nodiscard]] const char* to_string(Verdict verdict);

// b relative to a: a ratio above 1 means that b is slower.
struct Comparison {
  double ratio;
  Interval ratio_interval;
  double margin;  // ratios within [1 / (1 + margin), 1 + margin] count as equal
  Verdict verdict;
  double degrees_of_freedom;
  int units_a;
  int units_b;
  std::string method;
};

// Both call b faster or slower only if the whole interval lies farther from 1 than `least`.
//
// Paired t on log ratios: unit i of a was measured beside unit i of b, so what both felt cancels.
[[nodiscard]] Comparison compare_paired(std::span<const double> a_ns, std::span<const double> b_ns,
                                        double margin, double confidence, double least);

// Welch's t on logs: the units of a and b have nothing in common.
[[nodiscard]] Comparison compare_unpaired(std::span<const double> a_ns,
                                          std::span<const double> b_ns, double margin,
                                          double confidence, double least);

}  // namespace ftax
