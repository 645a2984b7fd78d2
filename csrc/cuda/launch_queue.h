// How many launches the driver takes before it makes the host wait for the device.
#pragma once

namespace ftax::cuda {

// Empty kernels that fit behind a closed gate before a launch blocks. Found once per process, on
// the current device, in well under a second. Where nothing blocked in that time, the number that
// was launched: a lower bound. Throws UnavailableError without a CUDA device.
[[nodiscard]] int probe_launch_queue();

}  // namespace ftax::cuda
