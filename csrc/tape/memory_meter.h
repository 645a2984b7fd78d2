// Peak memory of what runs inside a scope, and what it allocates, as torch's own allocators report
// it. This is the hook that torch.profiler(profile_memory=True) uses, so it works for the CPU,
// where torch keeps no peak.
//
// The meter is a profiler state that is off, and not only the reporter that the allocators ask for:
// torch keeps both under one key and casts what it finds there to a profiler state, for example in
// every autograd function that is written in Python.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "tape/running_peak.h"

namespace ftax {

class MemoryMeter final : public torch::profiler::impl::ProfilerStateBase {
 public:
  explicit MemoryMeter(c10::Device device)
      : ProfilerStateBase(
            torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::Disabled)),
        device_(device) {}

  torch::profiler::impl::ActiveProfilerType profilerType() override {
    return torch::profiler::impl::ActiveProfilerType::NONE;
  }

  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  // Sizes are negative for frees. Memory that lived before the scope may be freed inside it; the
  // balance then falls below zero, and the peak is still relative to the start. Called by the
  // threads of a backward pass too.
  void reportMemoryUsage(void*, int64_t alloc_size, size_t, size_t, c10::Device device) override {
    if (device.type() != device_.type()) return;
    bytes_.add(alloc_size);
    if (alloc_size <= 0) return;
    ++allocations_;
    allocated_bytes_ += alloc_size;
  }

  [[nodiscard]] int64_t peak_bytes() const { return bytes_.peak(); }
  [[nodiscard]] int64_t allocations() const { return allocations_; }
  [[nodiscard]] int64_t allocated_bytes() const { return allocated_bytes_; }  // by all of them

  // The meter under which `body` ran on this thread.
  template <typename Body>
  static std::shared_ptr<const MemoryMeter> watch(c10::Device device, Body body) {
    const auto meter = std::make_shared<MemoryMeter>(device);
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
      body();
    }
    return meter;
  }

 private:
  c10::Device device_;
  RunningPeak bytes_;
  std::atomic<int64_t> allocations_ = 0;
  std::atomic<int64_t> allocated_bytes_ = 0;
};

}  // namespace ftax
