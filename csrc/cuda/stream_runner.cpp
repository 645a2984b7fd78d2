// The stream is entered before the inner runner's own scope, and left after it. It waits for what
// the thread had issued elsewhere, such as copies of the state that requests write, and is waited
// for at the end: a request that failed half-way must not write into what is put back next.
#include "cuda/stream_runner.h"

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

namespace ftax::cuda {
namespace {

class StreamScope final : public Runner::Scope {
 public:
  explicit StreamScope(c10::cuda::CUDAStream stream) : guard_(stream), stream_(stream) {}
  ~StreamScope() override {
    inner_.reset();
    cudaStreamSynchronize(stream_.stream());  // what it says is said again by the next call
  }
  void keep(std::unique_ptr<Runner::Scope> inner) { inner_ = std::move(inner); }

 private:
  c10::cuda::CUDAStreamGuard guard_;
  c10::cuda::CUDAStream stream_;
  std::unique_ptr<Runner::Scope> inner_;
};

}  // namespace

std::unique_ptr<Runner::Scope> StreamRunner::enter() {
  c10::cuda::getCurrentCUDAStream(stream_.device_index()).synchronize();
  auto scope = std::make_unique<StreamScope>(stream_);
  scope->keep(RunnerWrapper::enter());
  return scope;
}

}  // namespace ftax::cuda
