// A running total, and the largest that it ever was. Any thread may add.
#pragma once

#include <atomic>
#include <cstdint>

namespace ftax {

class RunningPeak {
 public:
  void add(int64_t amount) {
    const int64_t total = total_ += amount;
    int64_t peak = peak_;
    while (peak < total && !peak_.compare_exchange_weak(peak, total)) {
    }
  }

  [[nodiscard]] int64_t total() const { return total_; }
  [[nodiscard]] int64_t peak() const { return peak_; }  // at least 0, where it starts

 private:
  std::atomic<int64_t> total_ = 0;
  std::atomic<int64_t> peak_ = 0;
};

}  // namespace ftax
