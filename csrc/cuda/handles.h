// CUDA's handles as unique pointers. What destroying one returns is ignored: nobody can act on it,
// and the call that mattered was checked.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "cuda/check.h"

namespace ftax::cuda {

template <auto destroy>
struct Deleter {
  template <typename T>
  void operator()(T* handle) const noexcept {
    static_cast<void>(destroy(handle));
  }
};

using UniqueEvent = std::unique_ptr<CUevent_st, Deleter<cudaEventDestroy>>;
using UniqueStream = std::unique_ptr<CUstream_st, Deleter<cudaStreamDestroy>>;
using UniqueGraph = std::unique_ptr<CUgraph_st, Deleter<cudaGraphDestroy>>;
using UniqueGraphExec = std::unique_ptr<CUgraphExec_st, Deleter<cudaGraphExecDestroy>>;
using UniqueDeviceMemory = std::unique_ptr<void, Deleter<cudaFree>>;
template <typename T>
using UniquePinned = std::unique_ptr<T, Deleter<cudaFreeHost>>;

// An event that records the time.
[[nodiscard]] inline UniqueEvent make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "cudaEventCreate");
  return UniqueEvent(event);
}

// A stream that does not wait for the default stream.
[[nodiscard]] inline UniqueStream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return UniqueStream(stream);
}

}  // namespace ftax::cuda
