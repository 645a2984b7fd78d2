// Wraps a runner so that each request takes a known time longer: what `compare` must call slower.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "measure/runner_wrapper.h"

namespace ftax {

class DelayRunner final : public RunnerWrapper {
 public:
  DelayRunner(std::shared_ptr<Runner> inner, int64_t delay_ns)
      : RunnerWrapper(std::move(inner)), delay_ns_(delay_ns) {
    if (delay_ns < 0) {
      throw InvalidArgumentError("the delay is " + std::to_string(delay_ns) +
                                 " ns; a delay cannot be negative");
    }
  }

  void enqueue() override {
    for (const int64_t end = now_ns() + delay_ns_; now_ns() < end;) {
    }
    RunnerWrapper::enqueue();
  }

 private:
  int64_t delay_ns_;
};

}  // namespace ftax
