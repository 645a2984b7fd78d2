// Written, not read: a write takes lines of the cache whatever was in them. Twice the cache,
// because its replacement policy is not published. The written lines are dirty, so the next request
// also pays for evicting them, as it would after any other work.
#include "cuda/l2_flush.h"

#include "core/error.h"

namespace ftax::cuda {
namespace {

size_t choose_bytes() {
  require_device();
  int device = 0;
  int l2_bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device),
        "cudaDeviceGetAttribute(L2CacheSize)");
  if (l2_bytes <= 0) {
    throw UnsupportedError("device " + std::to_string(device) +
                           " reports no L2 cache to flush; measure warm");
  }
  return 2 * static_cast<size_t>(l2_bytes);
}

UniqueDeviceMemory allocate(size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  return UniqueDeviceMemory(memory);
}

}  // namespace

L2Flush::L2Flush() : bytes_(choose_bytes()), memory_(allocate(bytes_)) {}

void L2Flush::enqueue(cudaStream_t stream) {
  check(cudaMemsetAsync(memory_.get(), 0, bytes_, stream), "cudaMemsetAsync");
}

}  // namespace ftax::cuda
