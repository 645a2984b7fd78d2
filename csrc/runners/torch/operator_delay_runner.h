// Wraps a runner so that every operator call it makes waits a known time first. This is how the
// receipt is proved: a delay put into each operator call must appear in the time of the operators,
// once per call, and in no tax (docs/intervention.md).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "measure/runner.h"

namespace ftax {

class OperatorDelayRunner final : public Runner {
 public:
  // A delay of 0 still intercepts every call: the baseline that pays for the interception.
  OperatorDelayRunner(std::shared_ptr<Runner> inner, int64_t delay_ns);

  [[nodiscard]] const std::string& name() const override { return inner_->name(); }
  [[nodiscard]] Host host() const override { return inner_->host(); }
  [[nodiscard]] bool needs_gil() const override { return inner_->needs_gil(); }
  [[nodiscard]] std::unique_ptr<Scope> enter() override;
  void enqueue() override { inner_->enqueue(); }
  void synchronize() override { inner_->synchronize(); }

 private:
  std::shared_ptr<Runner> inner_;
  int64_t delay_ns_;
};

}  // namespace ftax
