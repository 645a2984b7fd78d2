// Wraps a runner so that what its step writes is put back, outside the timed region: what decides
// which work is done (positions, counters, and what Python keeps) before each sample; weights and
// the like, which fill caches and whose values decide nothing, once a round.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>
#include <vector>

#include "measure/runner_wrapper.h"
#include "tape/saved_state.h"

namespace ftax {

class StateRunner final : public RunnerWrapper {
 public:
  // `reset` is called without arguments; None for nothing. Construct and destroy with the GIL held.
  StateRunner(std::shared_ptr<Runner> inner, std::shared_ptr<SavedState> each_sample,
              std::shared_ptr<SavedState> each_round, pybind11::object reset);

  void prepare() override;
  [[nodiscard]] bool needs_prepare() const override;
  [[nodiscard]] std::unique_ptr<Scope> enter() override;

 private:
  std::shared_ptr<SavedState> each_sample_, each_round_;
  pybind11::object reset_;
};

}  // namespace ftax
