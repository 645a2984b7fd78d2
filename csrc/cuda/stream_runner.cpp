// The stream is entered before the inner runner's own scope, and left after it.
#include "cuda/stream_runner.h"

#include <c10/cuda/CUDAGuard.h>

namespace ftax::cuda {
namespace {

class StreamScope final : public Runner::Scope {
 public:
  explicit StreamScope(c10::cuda::CUDAStream stream) : guard_(stream) {}
  void keep(std::unique_ptr<Runner::Scope> inner) { inner_ = std::move(inner); }

 private:
  c10::cuda::CUDAStreamGuard guard_;
  std::unique_ptr<Runner::Scope> inner_;
};

}  // namespace

std::unique_ptr<Runner::Scope> StreamRunner::enter() {
  auto scope = std::make_unique<StreamScope>(stream_);
  scope->keep(RunnerWrapper::enter());
  return scope;
}

}  // namespace ftax::cuda
