// NVTX is reached through torch, which has it linked: the headers of NVTX and of cudaProfilerStart
// are packages of their own, which a toolkit good enough to compile this often lacks.
#include "cuda/nvtx.h"

#include <torch/csrc/profiler/stubs/base.h>

#include <utility>

#include "core/error.h"
#include "cuda/check.h"

extern "C" {
cudaError_t cudaProfilerStart();
cudaError_t cudaProfilerStop();
}

namespace ftax::cuda {
namespace {

const torch::profiler::impl::ProfilerStubs& torch_nvtx() {
  return *torch::profiler::impl::cudaStubs();
}

class NvtxScope final : public Runner::Scope {
 public:
  NvtxScope(const std::string& label, RunnerWrapper& runner)
      : range_(label.c_str()), inner_(runner.RunnerWrapper::enter()) {}

 private:
  NvtxRange range_;
  std::unique_ptr<Runner::Scope> inner_;
};

// Stops also when the request throws, so that what follows is not profiled.
class ProfilerRange {
 public:
  ProfilerRange() { check(cudaProfilerStart(), "cudaProfilerStart"); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() { static_cast<void>(cudaProfilerStop()); }
};

}  // namespace

NvtxRange::NvtxRange(const char* name) { torch_nvtx().rangePush(name); }

NvtxRange::~NvtxRange() { torch_nvtx().rangePop(); }

NvtxRunner::NvtxRunner(std::shared_ptr<Runner> inner, std::string label)
    : RunnerWrapper(std::move(inner)), label_(std::move(label)) {
  if (!torch_nvtx().enabled()) {
    throw UnavailableError("this torch was built without NVTX; leave the ranges out");
  }
}

std::unique_ptr<Runner::Scope> NvtxRunner::enter() {
  return std::make_unique<NvtxScope>(label_, *this);
}

void NvtxRunner::enqueue() {
  const NvtxRange range("request");
  RunnerWrapper::enqueue();
}

void profile_once(Runner& runner) {
  require_device();
  const auto scope = runner.enter();
  runner.prepare();
  const ProfilerRange range;  // not around prepare(), which is none of the request
  runner.enqueue();
  runner.synchronize();
}

}  // namespace ftax::cuda
