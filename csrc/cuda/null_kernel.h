// A kernel that does nothing: the floor of a launch.
#pragma once

#include <cuda_runtime_api.h>

namespace ftax::cuda {

// One block of one thread on `stream`. Returns the launch's own error.
cudaError_t launch_null_kernel(cudaStream_t stream);

}  // namespace ftax::cuda
