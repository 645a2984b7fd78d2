// All checks happen here, once: enqueue() is one call of ONNX Runtime.
#include "runners/onnxruntime_runner.h"

namespace ftax {

OnnxRuntimeRunner::OnnxRuntimeRunner(std::shared_ptr<onnxruntime::IoBinding> binding,
                                     std::string name, c10::Device device,
                                     std::shared_ptr<void> memory_owner)
    : memory_owner_(std::move(memory_owner)),
      binding_(std::move(binding)),
      name_(std::move(name)),
      sync_(device) {
  binding_->check_complete();
}

}  // namespace ftax
