// The stream is entered before the inner runner's own scope, and left after it.
#include "cuda/stream_runner.h"

#include <c10/cuda/CUDAGuard.h>

#include <utility>

#include "core/error.h"

namespace ftax::cuda {
namespace {

class StreamScope final : public Runner::Scope {
 public:
  StreamScope(c10::cuda::CUDAStream stream, Runner& inner)
      : guard_(stream), inner_(inner.enter()) {}

 private:
  c10::cuda::CUDAStreamGuard guard_;
  std::unique_ptr<Runner::Scope> inner_;
};

}  // namespace

StreamRunner::StreamRunner(std::shared_ptr<Runner> inner, c10::cuda::CUDAStream stream)
    : inner_(std::move(inner)), stream_(stream) {
  if (inner_ == nullptr) throw InvalidArgumentError("inner is None; give the runner to wrap");
}

std::unique_ptr<Runner::Scope> StreamRunner::enter() {
  return std::make_unique<StreamScope>(stream_, *inner_);
}

}  // namespace ftax::cuda
