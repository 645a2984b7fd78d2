// Runs another runner on a stream of its own. All rungs of a ladder are wrapped alike, so that none
// pays for the legacy default stream's habit of waiting for every other stream.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <utility>

#include "measure/runner_wrapper.h"

namespace ftax::cuda {

class StreamRunner final : public RunnerWrapper {
 public:
  // Throws InvalidArgumentError if there is no inner runner.
  StreamRunner(std::shared_ptr<Runner> inner, c10::cuda::CUDAStream stream)
      : RunnerWrapper(std::move(inner)), stream_(stream) {}

  [[nodiscard]] std::unique_ptr<Scope> enter() override;

 private:
  c10::cuda::CUDAStream stream_;
};

}  // namespace ftax::cuda
