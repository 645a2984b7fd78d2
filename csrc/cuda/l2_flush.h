// Drives what the last request left out of the device's L2 cache.
#pragma once

#include <cstddef>

#include "cuda/handles.h"

namespace ftax::cuda {

class L2Flush {
 public:
  // Takes memory on the current device, twice its L2 cache, beside torch's allocator: torch's
  // memory statistics do not count it. Throws UnavailableError without a CUDA device, and
  // UnsupportedError for a device that reports no L2 cache.
  L2Flush();

  // Enqueues the flush. `stream` is of the device that was current at construction.
  void enqueue(cudaStream_t stream);

  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  UniqueDeviceMemory memory_;
};

}  // namespace ftax::cuda
