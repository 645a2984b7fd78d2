// The launch itself is checked; that the kernel ran is not, because nothing in it can fail.
#include "cuda/null_kernel_runner.h"

#include <c10/cuda/CUDAStream.h>

#include "cuda/check.h"
#include "cuda/null_kernel.h"

namespace ftax::cuda {

NullKernelRunner::NullKernelRunner() { require_device(); }

void NullKernelRunner::enqueue() {
  check(launch_null_kernel(c10::cuda::getCurrentCUDAStream().stream()), "launching a kernel");
}

void NullKernelRunner::synchronize() {
  check(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream()), "cudaStreamSynchronize");
}

}  // namespace ftax::cuda
