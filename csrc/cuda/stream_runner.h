// Runs another runner on a stream of its own. All rungs of a ladder are wrapped alike, so that none
// pays for the legacy default stream's habit of waiting for every other stream.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <string>

#include "measure/runner.h"

namespace ftax::cuda {

class StreamRunner final : public Runner {
 public:
  // Throws InvalidArgumentError if there is no inner runner.
  StreamRunner(std::shared_ptr<Runner> inner, c10::cuda::CUDAStream stream);

  [[nodiscard]] const std::string& name() const override { return inner_->name(); }
  [[nodiscard]] Host host() const override { return inner_->host(); }
  [[nodiscard]] bool needs_gil() const override { return inner_->needs_gil(); }
  [[nodiscard]] std::unique_ptr<Scope> enter() override;
  void enqueue() override { inner_->enqueue(); }
  void synchronize() override { inner_->synchronize(); }

 private:
  std::shared_ptr<Runner> inner_;
  c10::cuda::CUDAStream stream_;
};

}  // namespace ftax::cuda
