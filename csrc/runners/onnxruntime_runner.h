// Runs a bound ONNX Runtime session in C++. It holds the owner of the bound memory without knowing
// its type. It waits for the thread's current stream, as every other runner does, and not through
// ONNX Runtime, whose wait is for the whole device. So on CUDA the session has to be given the
// stream that the runner is driven on.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "measure/runner.h"
#include "onnxruntime/io_binding.h"
#include "runners/device_sync.h"

namespace ftax {

class OnnxRuntimeRunner final : public Runner {
 public:
  // Throws InvalidArgumentError if an input or output of `binding` is not bound.
  OnnxRuntimeRunner(std::shared_ptr<onnxruntime::IoBinding> binding, std::string name,
                    c10::Device device, std::shared_ptr<void> memory_owner);

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  [[nodiscard]] const std::shared_ptr<onnxruntime::IoBinding>& binding() const { return binding_; }
  void enqueue() override { binding_->enqueue(); }
  void synchronize() override { sync_(); }

 private:
  std::shared_ptr<void> memory_owner_;  // destroyed after the binding that points into it
  std::shared_ptr<onnxruntime::IoBinding> binding_;
  std::string name_;
  DeviceSync sync_;
};

}  // namespace ftax
