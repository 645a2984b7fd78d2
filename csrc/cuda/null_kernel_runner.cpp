// A device is asked for when the runner is made, so that the floors can say why there is none.
#include "cuda/null_kernel_runner.h"

#include <c10/cuda/CUDAStream.h>

#include "core/error.h"
#include "cuda/check.h"
#include "cuda/null_kernel.h"

namespace ftax::cuda {

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
