// Wraps a runner so that every operator call it makes waits a known time first. This is how the
// receipt is proved: a delay put into each operator call must appear in the time of the operators,
// once per call, and in no tax (docs/trust.md).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "measure/runner_wrapper.h"

namespace ftax {

class OperatorDelayRunner final : public RunnerWrapper {
 public:
  // A delay of 0 still intercepts every call: the baseline that pays for the interception.
  OperatorDelayRunner(std::shared_ptr<Runner> inner, int64_t delay_ns);

  [[nodiscard]] std::unique_ptr<Scope> enter() override;

 private:
  int64_t delay_ns_;
};

}  // namespace ftax
