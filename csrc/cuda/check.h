// What every CUDA call goes through: a failure names the call, the code and its meaning. It also
// clears the thread's last error, which the next kernel launch would otherwise report as its own.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/error.h"

namespace ftax::cuda {

// Throws RunnerError unless `code` is cudaSuccess. `call`: what was tried.
inline void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw RunnerError(std::string(call) + " failed with " + cudaGetErrorName(code) + ": " +
                    cudaGetErrorString(code));
}

// Throws UnavailableError without a usable CUDA device.
inline void require_device() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return;
  static_cast<void>(cudaGetLastError());
  throw UnavailableError(std::string("no CUDA device (cudaGetDeviceCount: ") +
                         cudaGetErrorString(code) + "); use device='cpu'");
}

}  // namespace ftax::cuda
