// The launch goes past torch, whose own replay also moves the state of the random-number generator
// on: from here, a graph that draws random numbers draws the same ones each time.
#include "cuda/graph_runner.h"

#include <c10/cuda/CUDAStream.h>

#include <utility>

#include "core/error.h"
#include "cuda/check.h"

namespace ftax::cuda {

GraphRunner::GraphRunner(cudaGraphExec_t graph, std::string name, std::shared_ptr<void> owner)
    : owner_(std::move(owner)), graph_(graph), name_(std::move(name)) {
  if (graph_ == nullptr) {
    throw InvalidArgumentError("the graph of " + name_ + " is null; instantiate it first");
  }
}

void GraphRunner::enqueue() {
  check(cudaGraphLaunch(graph_, c10::cuda::getCurrentCUDAStream().stream()), "cudaGraphLaunch");
}

void GraphRunner::synchronize() {
  check(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream()), "cudaStreamSynchronize");
}

}  // namespace ftax::cuda
