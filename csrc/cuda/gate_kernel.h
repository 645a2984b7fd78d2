// The kernel that holds a stream, and the two words that it shares with the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ftax::cuda {

struct GateWords {
  uint32_t opened;   // the host writes: 0 holds the gate closed
  uint32_t gave_up;  // the kernel writes: 1 once it has waited too long
};

// `words`: the device's address of mapped host memory. The kernel ends when the gate is opened, or
// by itself `limit_ns` after it started. Returns the launch's own error.
cudaError_t launch_gate_kernel(GateWords* words, uint64_t limit_ns, cudaStream_t stream);

}  // namespace ftax::cuda
