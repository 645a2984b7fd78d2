// The launch goes past torch, whose own replay also moves the state of the random-number generator
// on: from here, a graph that draws random numbers draws the same ones each time.
#include "cuda/graph_runner.h"

#include <c10/cuda/CUDAStream.h>

#include <utility>

#include "core/error.h"
#include "cuda/check.h"

namespace ftax::cuda {

GraphRunner::GraphRunner(std::vector<Piece> pieces, std::string name, std::shared_ptr<void> owner)
    : owner_(std::move(owner)), pieces_(std::move(pieces)), name_(std::move(name)) {
  for (const Piece& piece : pieces_) {
    const auto* const graph = std::get_if<cudaGraphExec_t>(&piece);
    if (graph != nullptr && *graph == nullptr) {
      throw InvalidArgumentError("the graph of " + name_ + " is null; instantiate it first");
    }
  }
}

void GraphRunner::enqueue() {
  cudaStream_t const stream = c10::cuda::getCurrentCUDAStream().stream();
  for (const Piece& piece : pieces_) {
    if (const auto* const graph = std::get_if<cudaGraphExec_t>(&piece)) {
      check(cudaGraphLaunch(*graph, stream), "cudaGraphLaunch");
    } else {
      std::get<std::function<void()>>(piece)();
    }
  }
}

void GraphRunner::synchronize() {
  check(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream()), "cudaStreamSynchronize");
}

}  // namespace ftax::cuda
