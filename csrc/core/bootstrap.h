// Confidence intervals for means of rounds and for differences between columns. Whole rounds are
// drawn, so a difference is always taken within a round; and they are drawn in blocks whose length
// follows the autocorrelation of what is being estimated, because neighbouring rounds are alike.
// docs/statistics.md has the simulated coverage behind each choice.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/round_table.h"
#include "core/statistics.h"

namespace ftax {

struct BootstrapOptions {
  double confidence = 0.95;
  int resamples = 2000;  // at least 10 / (1 - confidence): five in each tail
  uint64_t seed = 0;
  int block = 0;  // consecutive rounds drawn together; 0: compute_block() for each contrast
};

// One weight a column: {1, 0} is the mean of column 0, {1, -1} what column 0 costs above column 1.
using Contrast = std::vector<double>;

// The interval of the mean over rounds of each contrast. The draws follow from the seed alone:
// contrasts with the same block see the same rounds, and no contrast's interval depends on which
// others were asked for. Needs 2 rounds; honest from about 20 on.
[[nodiscard]] std::vector<Interval> compute_joint_intervals(const RoundTable& table,
                                                            std::span<const Contrast> contrasts,
                                                            const BootstrapOptions& options);

// The block length for the mean of a series: 1 if neighbours are unlike, at most a quarter of it.
[[nodiscard]] int compute_block(std::span<const double> series);

}  // namespace ftax
