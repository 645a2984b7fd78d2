// All checks happen here, once: enqueue() is one call of ONNX Runtime.
#include "runners/onnxruntime_runner.h"

namespace ftax {

OnnxRuntimeRunner::OnnxRuntimeRunner(std::shared_ptr<onnxruntime::IoBinding> binding,
                                     std::string name, std::shared_ptr<void> memory_owner)
    : memory_owner_(std::move(memory_owner)), binding_(std::move(binding)), name_(std::move(name)) {
  binding_->check_complete();
}

}  // namespace ftax
