// Names a runner's rounds and requests on the time line of nsys and ncu. For looking, not for
// timing: the ranges are inside what the loop times.
#pragma once

#include <memory>
#include <string>

#include "measure/runner_wrapper.h"

namespace ftax::cuda {

// A range of the calling thread, from construction to destruction.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name);
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
  ~NvtxRange();
};

// A range `label` around each round (the runner's scope, what it enters included), and in it a
// range "request" around each enqueue().
class NvtxRunner final : public RunnerWrapper {
 public:
  // Throws UnavailableError where torch has no NVTX.
  NvtxRunner(std::shared_ptr<Runner> inner, std::string label);

  [[nodiscard]] std::unique_ptr<Scope> enter() override;
  void enqueue() override;

 private:
  std::string label_;
};

// One request between cudaProfilerStart and cudaProfilerStop, for `nsys profile -c cudaProfilerApi`
// and `ncu --profile-from-start off`. Warm the runner up first. Without a profiler, just a request.
void profile_once(Runner& runner);

}  // namespace ftax::cuda
