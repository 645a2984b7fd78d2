// The flush comes after the inner runner's own preparation, which may touch memory.
#include "cuda/cold_runner.h"

#include <c10/cuda/CUDAStream.h>

#include <utility>

namespace ftax::cuda {

ColdRunner::ColdRunner(std::shared_ptr<Runner> inner) : RunnerWrapper(std::move(inner)) {}

void ColdRunner::prepare() {
  RunnerWrapper::prepare();
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  flush_.enqueue(stream);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace ftax::cuda
