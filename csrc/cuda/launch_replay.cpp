// Driver calls, not runtime calls: a node has the driver's handle of its kernel, and the runtime's
// lookup from a host symbol is no part of a launch that torch's libraries make either.
#include "cuda/launch_replay.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "cuda/check.h"

namespace ftax::cuda {
namespace {

class DeviceScope final : public Runner::Scope {
 public:
  explicit DeviceScope(int device) : guard_(static_cast<c10::DeviceIndex>(device)) {
    // The driver wants a current context, which the runtime gives a thread only when asked.
    check(cudaSetDevice(device), "cudaSetDevice");
  }

 private:
  c10::cuda::CUDAGuard guard_;
};

int find_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

int64_t check_delay(int64_t delay_ns) {
  if (delay_ns < 0) {
    throw InvalidArgumentError("the delay is " + std::to_string(delay_ns) +
                               " ns; a delay cannot be negative");
  }
  return delay_ns;
}

void spin(int64_t delay_ns) {
  for (const int64_t end = now_ns() + delay_ns; now_ns() < end;) {
  }
}

void issue(const Driver& driver, KernelLaunch& launch, CUstream stream) {
  launch.config.hStream = stream;
  driver.check(
      driver.launch_kernel_ex(&launch.config, launch.function, launch.parameters, launch.extra),
      "cuLaunchKernelEx");
}

void issue(const Driver& driver, const CopyLaunch& launch, CUstream stream) {
  driver.check(driver.memcpy_3d_async(&launch.parameters, stream), "cuMemcpy3DAsync");
}

void issue(const Driver& driver, const MemsetLaunch& launch, CUstream stream) {
  const CUDA_MEMSET_NODE_PARAMS& p = launch.parameters;
  if (p.elementSize == 4) {
    driver.check(driver.memset_d2d32_async(p.dst, p.pitch, p.value, p.width, p.height, stream),
                 "cuMemsetD2D32Async");
  } else if (p.elementSize == 2) {
    driver.check(driver.memset_d2d16_async(p.dst, p.pitch, static_cast<unsigned short>(p.value),
                                           p.width, p.height, stream),
                 "cuMemsetD2D16Async");
  } else {
    driver.check(driver.memset_d2d8_async(p.dst, p.pitch, static_cast<unsigned char>(p.value),
                                          p.width, p.height, stream),
                 "cuMemsetD2D8Async");
  }
}

}  // namespace

LaunchReplayRunner::LaunchReplayRunner(CUgraph graph, std::string name, std::shared_ptr<void> owner,
                                       Carveout carveout, int64_t delay_ns)
    : owner_(std::move(owner)),
      driver_(Driver::get()),
      name_(std::move(name)),
      device_(find_device()),
      graph_(read_graph(driver_, graph, carveout)),
      delay_ns_(check_delay(delay_ns)) {
  for (Launch& launch : graph_.launches) {
    if (auto* kernel = std::get_if<KernelLaunch>(&launch)) {
      kernel->config.attrs = kernel->attributes.data();
      kernel->config.numAttrs = static_cast<unsigned>(kernel->attributes.size());
    }
  }
}

std::unique_ptr<Runner::Scope> LaunchReplayRunner::enter() {
  return std::make_unique<DeviceScope>(device_);
}

void LaunchReplayRunner::enqueue() {
  const CUstream stream = c10::cuda::getCurrentCUDAStream().stream();
  for (Launch& launch : graph_.launches) {
    if (delay_ns_ > 0) spin(delay_ns_);  // two clock reads a launch are too many for every day
    std::visit([&](auto& one) { issue(driver_, one, stream); }, launch);
  }
}

void LaunchReplayRunner::synchronize() {
  check(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream()), "cudaStreamSynchronize");
}

}  // namespace ftax::cuda
