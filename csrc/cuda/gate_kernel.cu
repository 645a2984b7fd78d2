// One thread that reads a word of host memory until it changes. It sleeps between reads: a tight
// loop would fill the bus that the host's launches go through.
#include "cuda/gate_kernel.h"

namespace ftax::cuda {
namespace {

constexpr unsigned kSleepNs = 100;

__device__ uint64_t read_global_timer() {
  uint64_t now_ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
  return now_ns;
}

// volatile: each read goes to the host's memory, where a cached copy would never change.
__global__ void gate_kernel(volatile GateWords* words, uint64_t limit_ns) {
  const uint64_t start_ns = read_global_timer();
  while (words->opened == 0) {
    if (read_global_timer() - start_ns > limit_ns) {
      words->gave_up = 1;
      __threadfence_system();
      return;
    }
    __nanosleep(kSleepNs);
  }
}

}  // namespace

cudaError_t launch_gate_kernel(GateWords* words, uint64_t limit_ns, cudaStream_t stream) {
  gate_kernel<<<1, 1, 0, stream>>>(words, limit_ns);
  return cudaGetLastError();
}

}  // namespace ftax::cuda
