// The thread-local and global switches that decide which kernel an operator call runs. A tape is
// replayed under the state it was recorded in; a forward that changes the state half-way cannot be
// taped, because a replay would not know when to change it.
#pragma once

#include <c10/core/Stream.h>

#include <optional>
#include <string>

namespace ftax {

struct ThreadState {
  bool autocast_cpu = false;
  bool autocast_cuda = false;
  bool grad = false;
  bool inference = false;
  bool deterministic = false;
  bool sdp_flash = false;
  bool sdp_memory_efficient = false;
  bool sdp_math = false;
  bool sdp_cudnn = false;
  std::optional<c10::Stream> stream;  // current stream of the model's device, if it is not the CPU

  static ThreadState capture(c10::Device device);

  // What differs, in words a user knows ("autocast on the CPU"); "" when nothing does.
  [[nodiscard]] std::string describe_change(const ThreadState& now) const;
};

}  // namespace ftax
