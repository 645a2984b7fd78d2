// The graph is captured on a stream of its own: torch's current stream may be the default one,
// which cannot capture.
#include "cuda/floor_runners.h"

#include <c10/cuda/CUDAStream.h>

#include "cuda/null_kernel.h"

namespace ftax::cuda {
namespace {

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

UniqueGraph capture_null_kernel() {
  const UniqueStream stream = make_stream();
  // Loads the kernel, which a capture forbids.
  check(launch_null_kernel(stream.get()), "launching a kernel");
  check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  const cudaError_t launched = launch_null_kernel(stream.get());
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream.get(), &graph);
  UniqueGraph captured(graph);
  check(launched, "launching a kernel into a capture");
  check(ended, "cudaStreamEndCapture");
  return captured;
}

UniqueGraphExec instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  return UniqueGraphExec(exec);
}

}  // namespace

FloorRunner::FloorRunner(std::string name) : name_(std::move(name)) { require_device(); }

void FloorRunner::synchronize() {
  check(cudaStreamSynchronize(current_stream()), "cudaStreamSynchronize");
}

EventPairRunner::EventPairRunner()
    : FloorRunner("event pair"), first_(make_event()), second_(make_event()) {}

void EventPairRunner::enqueue() {
  const cudaStream_t stream = current_stream();
  check(cudaEventRecord(first_.get(), stream), "cudaEventRecord");
  check(cudaEventRecord(second_.get(), stream), "cudaEventRecord");
}

void EventPairRunner::synchronize() {
  check(cudaEventSynchronize(second_.get()), "cudaEventSynchronize");
}

NullGraphRunner::NullGraphRunner()
    : FloorRunner("empty graph"), graph_(instantiate(capture_null_kernel().get())) {}

void NullGraphRunner::enqueue() {
  check(cudaGraphLaunch(graph_.get(), current_stream()), "cudaGraphLaunch");
}

LaunchBurstRunner::LaunchBurstRunner(int count) : FloorRunner("launches"), count_(count) {
  if (count < 1) {
    throw InvalidArgumentError("the burst is of " + std::to_string(count) +
                               " launches; give at least 1");
  }
}

void LaunchBurstRunner::enqueue() {
  const cudaStream_t stream = current_stream();
  for (int i = 0; i < count_; ++i) check(launch_null_kernel(stream), "launching a kernel");
}

}  // namespace ftax::cuda
