// Calls the module's forward with the inputs given at construction. The inputs are copied onto the
// stack for each call (reference counts only), which is what every C++ caller of forward() does.
#include "runners/torch/torchscript_runner.h"

#include <torch/csrc/jit/serialization/import.h>

#include "core/error.h"

namespace ftax {
namespace {

torch::jit::Module load(const std::string& path, c10::Device device) {
  try {
    return torch::jit::load(path, device);
  } catch (const c10::Error& error) {
    throw InvalidArgumentError("cannot load " + path + " as TorchScript (" +
                               error.what_without_backtrace() +
                               "); make the file with torch.jit.save");
  }
}

}  // namespace

TorchScriptRunner::TorchScriptRunner(const std::string& path, std::string name, c10::Device device,
                                     GradMode grad_mode)
    : module_(load(path, device)), name_(std::move(name)), sync_(device), grad_mode_(grad_mode) {
  if (!module_.find_method("forward").has_value()) {
    throw InvalidArgumentError(path + " has no forward method; script or trace a module with one");
  }
  if (module_.is_training()) module_.eval();
}

std::vector<c10::TypePtr> TorchScriptRunner::input_types() const {
  const auto& arguments = module_.get_method("forward").function().getSchema().arguments();
  std::vector<c10::TypePtr> types;
  for (size_t i = 1; i < arguments.size(); ++i) types.push_back(arguments[i].type());
  return types;
}

void TorchScriptRunner::bind_inputs(std::vector<c10::IValue> inputs) {
  const size_t wanted = input_types().size();
  if (inputs.size() > wanted) {
    throw InvalidArgumentError(name_ + " takes " + std::to_string(wanted) + " inputs, " +
                               std::to_string(inputs.size()) + " were given");
  }
  inputs_ = std::move(inputs);
}

void TorchScriptRunner::enqueue() {
  try {
    module_.forward(inputs_);
  } catch (const c10::Error& error) {
    throw RunnerError(name_ + " failed: " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw RunnerError(name_ + " failed: " + error.what());
  }
}

c10::IValue TorchScriptRunner::run() {
  const GradModeScope scope(grad_mode_);
  try {
    return module_.forward(inputs_);
  } catch (const c10::Error& error) {
    throw RunnerError(name_ + " failed: " + error.what_without_backtrace());
  }
}

}  // namespace ftax
