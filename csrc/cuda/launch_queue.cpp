// A launch that blocks returns only when the watchdog has opened the gate; it is the one that did
// not fit.
#include "cuda/launch_queue.h"

#include "cuda/gate.h"
#include "cuda/null_kernel.h"

namespace ftax::cuda {
namespace {

constexpr int64_t kWatchdogNs = 300'000'000;
constexpr int kMostLaunches = 1 << 16;  // no driver is known to queue so many

int count_launches() {
  require_device();
  const UniqueStream stream = make_stream();
  // Loads the kernel: behind a closed gate that would block, and look like a full queue.
  check(launch_null_kernel(stream.get()), "launching a kernel");
  check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  Gate gate(kWatchdogNs);
  gate.close(stream.get());
  for (int launches = 0; launches < kMostLaunches; ++launches) {
    check(launch_null_kernel(stream.get()), "launching a kernel");
    if (gate.was_cut()) return launches;
  }
  return kMostLaunches;
}

}  // namespace

int probe_launch_queue() {
  static const int limit = count_launches();  // tried again if it threw
  return limit;
}

}  // namespace ftax::cuda
