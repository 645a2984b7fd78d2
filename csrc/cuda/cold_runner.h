// Wraps a runner so that each of its samples starts with a cold L2 cache. The flush is over before
// the sample's time begins.
#pragma once

#include <memory>

#include "cuda/l2_flush.h"
#include "measure/runner_wrapper.h"

namespace ftax::cuda {

class ColdRunner final : public RunnerWrapper {
 public:
  // Throws what L2Flush throws.
  explicit ColdRunner(std::shared_ptr<Runner> inner);

  void prepare() override;
  [[nodiscard]] bool needs_prepare() const override { return true; }

 private:
  L2Flush flush_;
};

}  // namespace ftax::cuda
