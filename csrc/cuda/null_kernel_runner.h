// Launches one empty kernel on torch's current stream: with the timed loop around it, the floor of
// a launch plus a synchronise.
#pragma once

#include <string>

#include "measure/runner.h"

namespace ftax::cuda {

class NullKernelRunner final : public Runner {
 public:
  // Throws UnavailableError without a usable CUDA device.
  NullKernelRunner();
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  void enqueue() override;
  void synchronize() override;

 private:
  std::string name_ = "empty kernel";
};

}  // namespace ftax::cuda
