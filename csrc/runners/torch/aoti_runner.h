// Runs an AOTInductor package in C++: torch's compiler without Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <string>
#include <vector>

#include "measure/runner.h"
#include "runners/device_sync.h"
#include "runners/grad_mode.h"

namespace ftax {

class AotiRunner final : public Runner {
 public:
  // `path`: a package (.pt2) compiled for `device`. Throws InvalidArgumentError if torch cannot
  // load it. A package compiled against another C++ library crashes: load it in another process
  // first.
  AotiRunner(const std::string& path, std::string name, c10::Device device, GradMode grad_mode);

  // The tensors of each inference, in the order that the package was exported with.
  void bind_inputs(std::vector<at::Tensor> inputs) { inputs_ = std::move(inputs); }

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  [[nodiscard]] std::unique_ptr<Scope> enter() override {
    return std::make_unique<GradModeScope>(grad_mode_);
  }
  void enqueue() override { (void)call(); }
  void synchronize() override { sync_(); }

  // One inference outside any measurement.
  [[nodiscard]] std::vector<at::Tensor> run();

 private:
  std::vector<at::Tensor> call();

  torch::inductor::AOTIModelPackageLoader loader_;
  std::vector<at::Tensor> inputs_;
  std::string name_;
  DeviceSync sync_;
  GradMode grad_mode_;
};

}  // namespace ftax
