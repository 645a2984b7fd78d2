// Reads the switches through torch's own accessors; all are plain loads, so that the recorder can
// compare them at every operator call.
#include "tape/thread_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

namespace ftax {
namespace {

std::array<int, 6> read_fp32_precision(const at::Context& context) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 9
  // One switch for products, one for cuDNN, one for oneDNN.
  return {static_cast<int>(context.float32MatmulPrecision()),
          static_cast<int>(context.allowTF32CuDNN()), static_cast<int>(context.allowTF32OneDNN())};
#else
  using at::Float32Backend;
  using at::Float32Op;
  const auto read = [&](Float32Backend backend, Float32Op op) {
    return static_cast<int>(context.float32Precision(backend, op));
  };
  return {read(Float32Backend::CUDA, Float32Op::MATMUL),
          read(Float32Backend::CUDA, Float32Op::CONV),
          read(Float32Backend::CUDA, Float32Op::RNN),
          read(Float32Backend::MKLDNN, Float32Op::MATMUL),
          read(Float32Backend::MKLDNN, Float32Op::CONV),
          read(Float32Backend::MKLDNN, Float32Op::RNN)};
#endif
}

}  // namespace

ThreadState ThreadState::capture(c10::Device device) {
  const at::Context& context = at::globalContext();
  ThreadState state;
  state.autocast_cpu = at::autocast::is_autocast_enabled(at::kCPU);
  state.autocast_cuda = at::autocast::is_autocast_enabled(at::kCUDA);
  state.autocast_cpu_dtype = at::autocast::get_autocast_dtype(at::kCPU);
  state.autocast_cuda_dtype = at::autocast::get_autocast_dtype(at::kCUDA);
  state.autocast_cache = at::autocast::is_autocast_cache_enabled();
  state.default_dtype = c10::get_default_dtype_as_scalartype();
  state.grad = c10::GradMode::is_enabled();
  state.inference = c10::InferenceMode::is_enabled();
  state.deterministic = context.deterministicAlgorithms();
  state.fp32_precision = read_fp32_precision(context);
  state.reductions = {static_cast<int>(context.allowFP16ReductionCuBLAS()),
                      static_cast<int>(context.allowBF16ReductionCuBLAS())};
  state.cudnn = context.userEnabledCuDNN();
  state.cudnn_benchmark = context.benchmarkCuDNN();
  state.cudnn_deterministic = context.deterministicCuDNN();
  state.mkldnn = context.userEnabledMkldnn();
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
  if (autocast_cpu_dtype != now.autocast_cpu_dtype) return "the dtype of autocast on the CPU";
  if (autocast_cuda_dtype != now.autocast_cuda_dtype) return "the dtype of autocast on CUDA";
  if (autocast_cpu != now.autocast_cpu) return "autocast on the CPU";
  if (autocast_cuda != now.autocast_cuda) return "autocast on CUDA";
  if ((autocast_cpu || autocast_cuda) && autocast_cache != now.autocast_cache) {
    return "whether autocast keeps what it casts";
  }
  if (grad != now.grad) return "grad mode";
  if (inference != now.inference) return "inference mode";
  return describe_change_below_autograd(now);
}

std::string ThreadState::describe_change_below_autograd(const ThreadState& now) const {
  if (default_dtype != now.default_dtype) return "the default dtype";
  if (fp32_precision != now.fp32_precision) return "the precision of fp32 products (TF32)";
  if (reductions != now.reductions) return "the precision of sums of fp16 or bf16 products";
  if (cudnn != now.cudnn || cudnn_benchmark != now.cudnn_benchmark ||
      cudnn_deterministic != now.cudnn_deterministic) {
    return "the switches of cuDNN";
  }
  if (mkldnn != now.mkldnn) return "the use of oneDNN";
  if (deterministic != now.deterministic) return "deterministic algorithms";
  if (sdp_flash != now.sdp_flash || sdp_memory_efficient != now.sdp_memory_efficient ||
      sdp_math != now.sdp_math || sdp_cudnn != now.sdp_cudnn) {
    return "the choice of attention back ends";
  }
  if (stream != now.stream) return "the current stream";
  return "";
}

}  // namespace ftax
