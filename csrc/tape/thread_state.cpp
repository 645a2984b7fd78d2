// Reads the switches through torch's own accessors; all are plain loads, so that the recorder can
// compare them at every operator call.
#include "tape/thread_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace ftax {

ThreadState ThreadState::capture(c10::Device device) {
  const at::Context& context = at::globalContext();
  ThreadState state;
  state.autocast_cpu = at::autocast::is_autocast_enabled(at::kCPU);
  state.autocast_cuda = at::autocast::is_autocast_enabled(at::kCUDA);
  state.grad = c10::GradMode::is_enabled();
  state.inference = c10::InferenceMode::is_enabled();
  state.deterministic = context.deterministicAlgorithms();
  state.sdp_flash = context.userEnabledFlashSDP();
  state.sdp_memory_efficient = context.userEnabledMemEfficientSDP();
  state.sdp_math = context.userEnabledMathSDP();
  state.sdp_cudnn = context.userEnabledCuDNNSDP();
  if (!device.is_cpu()) {
    state.stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }
  return state;
}

std::string ThreadState::describe_change(const ThreadState& now) const {
  if (autocast_cpu != now.autocast_cpu) return "autocast on the CPU";
  if (autocast_cuda != now.autocast_cuda) return "autocast on CUDA";
  if (grad != now.grad) return "grad mode";
  if (inference != now.inference) return "inference mode";
  if (deterministic != now.deterministic) return "deterministic algorithms";
  if (sdp_flash != now.sdp_flash || sdp_memory_efficient != now.sdp_memory_efficient ||
      sdp_math != now.sdp_math || sdp_cudnn != now.sdp_cudnn) {
    return "the choice of attention back ends";
  }
  if (stream != now.stream) return "the current stream";
  return "";
}

}  // namespace ftax
