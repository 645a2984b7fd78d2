// Wraps a runner so that each request takes a known time longer: what `compare` must call slower.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "measure/runner.h"

namespace ftax {

class DelayRunner final : public Runner {
 public:
  DelayRunner(std::shared_ptr<Runner> inner, int64_t delay_ns)
      : inner_(std::move(inner)), delay_ns_(delay_ns) {
    if (delay_ns < 0) {
      throw InvalidArgumentError("the delay is " + std::to_string(delay_ns) +
                                 " ns; a delay cannot be negative");
    }
  }

  [[nodiscard]] const std::string& name() const override { return inner_->name(); }
  [[nodiscard]] Host host() const override { return inner_->host(); }
  [[nodiscard]] bool needs_gil() const override { return inner_->needs_gil(); }
  [[nodiscard]] std::unique_ptr<Scope> enter() override { return inner_->enter(); }
  void enqueue() override {
    for (const int64_t end = now_ns() + delay_ns_; now_ns() < end;) {
    }
    inner_->enqueue();
  }
  void synchronize() override { inner_->synchronize(); }

 private:
  std::shared_ptr<Runner> inner_;
  int64_t delay_ns_;
};

}  // namespace ftax
