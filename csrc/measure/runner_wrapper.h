// The base of runners that change one thing about another runner: everything is forwarded, so a
// wrapper overrides what it changes and can forget nothing that Runner will grow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "measure/runner.h"

namespace ftax {

class RunnerWrapper : public Runner {
 public:
  [[nodiscard]] const std::string& name() const override { return inner_->name(); }
  [[nodiscard]] Host host() const override { return inner_->host(); }
  [[nodiscard]] bool needs_gil() const override { return inner_->needs_gil(); }
  [[nodiscard]] std::unique_ptr<Scope> enter() override { return inner_->enter(); }
  void prepare() override { inner_->prepare(); }
  [[nodiscard]] bool needs_prepare() const override { return inner_->needs_prepare(); }
  [[nodiscard]] int64_t count_rebuilds() override { return inner_->count_rebuilds(); }
  void enqueue() override { inner_->enqueue(); }
  void synchronize() override { inner_->synchronize(); }

 protected:
  explicit RunnerWrapper(std::shared_ptr<Runner> inner) : inner_(std::move(inner)) {
    if (inner_ == nullptr) throw InvalidArgumentError("the inner runner is None; pass a runner");
  }

 private:
  std::shared_ptr<Runner> inner_;
};

}  // namespace ftax
