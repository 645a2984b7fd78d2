// Turns a code of the CUDA runtime into an error that names the call. The surprising part: the
// runtime's own memory of the failure is cleared, or torch would report it again at its next
// launch.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/error.h"

namespace ftax::cuda {

// Throws RunnerError unless `code` is cudaSuccess; `call` is what failed, as a reader would name
// it.
inline void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) [[likely]] {
    return;
  }
  static_cast<void>(cudaGetLastError());
  throw RunnerError(std::string(call) + " failed with " + cudaGetErrorName(code) + ": " +
                    cudaGetErrorString(code) +
                    " (an earlier kernel may be the cause: CUDA_LAUNCH_BLOCKING=1 tells)");
}

}  // namespace ftax::cuda
