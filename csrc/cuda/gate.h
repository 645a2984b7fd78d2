// Holds a CUDA stream closed, so that the host can issue work which the device does not begin yet:
// the time to issue and the time to execute then separate. It cannot deadlock: a watchdog opens it
// after a time, the kernel gives up by itself after twice that time, and the destructor opens it.
//
// Never close a gate while a profiler traces: it may wait for the kernel to end. What waits for the
// device behind a closed gate (a host read, memory that grows, a kernel that is loaded on its first
// launch) waits for the watchdog; `was_cut` tells.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include "cuda/gate_kernel.h"
#include "cuda/handles.h"
#include "measure/watchdog.h"

namespace ftax::cuda {

class Gate {
 public:
  // `watchdog_ns`: how long a closing lasts at most. Throws UnavailableError without a CUDA device.
  explicit Gate(int64_t watchdog_ns);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  // Opens the gate and waits until the device has passed it.
  ~Gate();

  // What is enqueued on `stream` from here on does not begin before the gate opens. Opens an
  // earlier closing first, and waits until the device has passed that.
  void close(cudaStream_t stream);
  // Returns at once, and never fails; an open gate stays open.
  void open() noexcept;
  // Whether the last closing ended by itself before open() was called.
  [[nodiscard]] bool was_cut() const noexcept;

 private:
  enum State : uint32_t { kClosed, kOpenedByCaller, kOpenedByWatchdog };

  void open_as(State state) noexcept;
  // Returns an error only if the device failed.
  cudaError_t finish() noexcept;

  int64_t watchdog_ns_;
  UniquePinned<GateWords> words_;
  GateWords* device_words_ = nullptr;
  std::optional<cudaStream_t> stream_;  // of a closing that the device may not have passed yet
  std::optional<Watchdog> watchdog_;
};

}  // namespace ftax::cuda
