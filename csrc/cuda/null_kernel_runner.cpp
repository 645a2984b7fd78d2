// Every CUDA call is checked; a failure names the call, the code and what to do.
#include "cuda/null_kernel_runner.h"

#include <c10/cuda/CUDAStream.h>

#include "core/error.h"
#include "cuda/null_kernel.h"

namespace ftax::cuda {
namespace {

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  throw RunnerError(std::string(call) + " failed with " + cudaGetErrorName(code) + ": " +
                    cudaGetErrorString(code));
}

}  // namespace

NullKernelRunner::NullKernelRunner() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    throw UnavailableError(std::string("no CUDA device (cudaGetDeviceCount: ") +
                           cudaGetErrorString(code) + "); use device='cpu'");
  }
}

void NullKernelRunner::enqueue() {
  check(launch_null_kernel(c10::cuda::getCurrentCUDAStream().stream()), "launching a kernel");
}

void NullKernelRunner::synchronize() {
  check(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream()), "cudaStreamSynchronize");
}

}  // namespace ftax::cuda
