// Measures the clock with itself: the price of a read is the floor under every latency that ftax
// reports, so it is stored with every result instead of being subtracted from one.
#include "core/clock.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/statistics.h"

namespace ftax {

ClockCost measure_clock_cost() {
  constexpr int kBatches = 101;
  constexpr int kReadsPerBatch = 1000;  // about 30 us a batch: most batches see no interrupt
  std::vector<double> batch_ns_per_read;
  batch_ns_per_read.reserve(kBatches);
  int64_t resolution_ns = std::numeric_limits<int64_t>::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    const int64_t start_ns = now_ns();
    int64_t previous_ns = start_ns;
    for (int i = 0; i < kReadsPerBatch; ++i) {
      const int64_t read_ns = now_ns();
      if (read_ns > previous_ns) resolution_ns = std::min(resolution_ns, read_ns - previous_ns);
      previous_ns = read_ns;
    }
    batch_ns_per_read.push_back(static_cast<double>(previous_ns - start_ns) / kReadsPerBatch);
  }
  return {compute_median(batch_ns_per_read), resolution_ns};
}

}  // namespace ftax
