// Runs a TorchScript module in C++, as a deployment without Python would.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "measure/runner.h"
#include "runners/device_sync.h"
#include "runners/grad_mode.h"

namespace ftax {

class TorchScriptRunner final : public Runner {
 public:
  // `path`: a file made by torch.jit.save. Throws InvalidArgumentError if it is not one, or has no
  // forward method.
  TorchScriptRunner(const std::string& path, std::string name, c10::Device device,
                    GradMode grad_mode);

  // The types that forward declares, without self.
  [[nodiscard]] std::vector<c10::TypePtr> input_types() const;
  // Throws InvalidArgumentError for more inputs than declared; the last ones may have defaults.
  void bind_inputs(std::vector<c10::IValue> inputs);

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  [[nodiscard]] std::unique_ptr<Scope> enter() override {
    return std::make_unique<GradModeScope>(grad_mode_);
  }
  void enqueue() override;
  void synchronize() override { sync_(); }

  // One inference outside any measurement.
  [[nodiscard]] c10::IValue run();

 private:
  torch::jit::Module module_;
  std::vector<c10::IValue> inputs_;
  std::string name_;
  DeviceSync sync_;
  GradMode grad_mode_;
};

}  // namespace ftax
