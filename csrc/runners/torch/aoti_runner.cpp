// The package takes a flat list of tensors and gives one back. The list is passed by reference, so
// the inputs stay bound; the outputs die in the timed region, as a caller's would.
#include "runners/torch/aoti_runner.h"

#include <exception>
#include <utility>

#include "core/error.h"

namespace ftax {
namespace {

std::string first_line(const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = from_torch ? from_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

torch::inductor::AOTIModelPackageLoader load(const std::string& path, c10::Device device) {
  try {
    return {path, "model", /*run_single_threaded=*/false, /*num_runners=*/1, device.index()};
  } catch (const std::exception& error) {
    throw InvalidArgumentError("cannot load " + path + " as an AOTInductor package (" +
                               first_line(error) +
                               "); make it with torch._inductor.aoti_compile_and_package");
  }
}

}  // namespace

AotiRunner::AotiRunner(const std::string& path, std::string name, c10::Device device,
                       GradMode grad_mode)
    : loader_(load(path, device)), name_(std::move(name)), sync_(device), grad_mode_(grad_mode) {}

std::vector<at::Tensor> AotiRunner::call() {
  try {
    return loader_.run(inputs_);
  } catch (const std::exception& error) {
    throw RunnerError(name_ + " failed: " + first_line(error));
  }
}

std::vector<at::Tensor> AotiRunner::run() {
  const GradModeScope scope(grad_mode_);
  return call();
}

}  // namespace ftax
