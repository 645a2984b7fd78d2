// A small chain of operators written by hand in C++: the reference that the tape is compared with.
// Nothing drives torch from C++ with less overhead than calling at:: functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "measure/runner.h"
#include "runners/grad_mode.h"

namespace ftax {

// `repeats` times: x = layer_norm(x + linear(x, weight, bias)). CPU tensors, x of shape [rows, d].
class ChainRunner final : public Runner {
 public:
  ChainRunner(at::Tensor x, at::Tensor weight, at::Tensor bias, int repeats)
      : x_(std::move(x)), weight_(std::move(weight)), bias_(std::move(bias)), repeats_(repeats) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  [[nodiscard]] std::unique_ptr<Scope> enter() override {
    return std::make_unique<GradModeScope>(GradMode::kInference);
  }
  void enqueue() override { (void)run(); }
  [[nodiscard]] at::Tensor run() const;

 private:
  at::Tensor x_;
  at::Tensor weight_;
  at::Tensor bias_;
  int repeats_;
  std::string name_ = "hand-written C++";
};

}  // namespace ftax
