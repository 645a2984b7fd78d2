// Calls that take far longer than the others of their round, time and again: a median does not see
// them, and who calls pays for them. Slow means: to take longer by at
// least half of what the longer calls do, each of them weighted by what it adds. So a few long
// calls stand out of any number that are a little longer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/bootstrap.h"

namespace ftax {

struct SlowCalls {
  double mean_ns = 0;      // of all samples
  double share_ratio = 0;  // of the slow ones among them
  double extra_ns = 0;     // that a slow one takes above the median of its round, in the mean
};

// `rounds` hold the samples of each, and `waited_ns` how long threads waited for a CPU meanwhile,
// which is no time of the calls. Slow calls are there if what the mean of a round has above its
// median is, in the mean over the rounds and for certain, more than a twentieth of the mean of the
// medians, and than the distance of that from the upper end of its interval: also if each wait had
// cost half as long again, because who has waited finds cold caches. None of fewer than 10 rounds.
// Throws InvalidArgumentError unless each round has samples and a
// time of 0 or more.
[[nodiscard]] std::optional<SlowCalls> find_slow_calls(std::span<const std::vector<int64_t>> rounds,
                                                       std::span<const int64_t> waited_ns,
                                                       const BootstrapOptions& options);

}  // namespace ftax
