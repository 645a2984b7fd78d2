// The thread-local and global switches that decide which kernel an operator call runs. A tape is
// replayed under the state it was recorded in; a forward that changes the state half-way cannot be
// taped, because a replay would not know when to change it.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include <array>
#include <optional>
#include <string>

namespace ftax {

struct ThreadState {
  bool autocast_cpu = false;
  bool autocast_cuda = false;
  bool autocast_cache = false;
  at::ScalarType autocast_cpu_dtype = at::kFloat;  // that autocast computes in, on or off
  at::ScalarType autocast_cuda_dtype = at::kFloat;
  at::ScalarType default_dtype = at::kFloat;
  bool grad = false;
  bool inference = false;
  bool deterministic = false;
  std::array<int, 6> fp32_precision{};  // TF32 and its like, of each library and kind of operator
  std::array<int, 2> reductions{};      // whether fp16 and bf16 products may be summed as such
  bool cudnn = false;
  bool cudnn_benchmark = false;
  bool cudnn_deterministic = false;
  bool mkldnn = false;
  bool sdp_flash = false;
  bool sdp_memory_efficient = false;
  bool sdp_math = false;
  bool sdp_cudnn = false;
  std::optional<c10::Stream> stream;  // current stream of the model's device, if it is not the CPU

  static ThreadState capture(c10::Device device);

  // What differs, in words a user knows ("autocast on the CPU"); "" when nothing does.
  [[nodiscard]] std::string describe_change(const ThreadState& now) const;
  // Without what acts above autograd only: a training step changes its grad mode, and autocast.
  [[nodiscard]] std::string describe_change_below_autograd(const ThreadState& now) const;
};

}  // namespace ftax
