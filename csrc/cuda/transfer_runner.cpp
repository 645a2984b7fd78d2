// All on the thread's current stream, which orders the copies around the inner runner's work.
#include "cuda/transfer_runner.h"

#include <c10/cuda/CUDAStream.h>

#include <utility>

#include "cuda/check.h"

namespace ftax::cuda {
namespace {

void enqueue_copies(const std::vector<TransferRunner::Copy>& copies, cudaMemcpyKind kind,
                    cudaStream_t stream) {
  for (const auto& [target, source, bytes] : copies) {
    check(cudaMemcpyAsync(target, source, bytes, kind, stream), "cudaMemcpyAsync");
  }
}

}  // namespace

TransferRunner::TransferRunner(std::shared_ptr<Runner> inner, std::vector<Copy> inputs,
                               std::vector<Copy> outputs, std::shared_ptr<void> memory_owner)
    : RunnerWrapper(std::move(inner)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      memory_owner_(std::move(memory_owner)) {
  require_device();
}

void TransferRunner::enqueue() {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  enqueue_copies(inputs_, cudaMemcpyHostToDevice, stream);
  RunnerWrapper::enqueue();
  enqueue_copies(outputs_, cudaMemcpyDeviceToHost, stream);
}

}  // namespace ftax::cuda
