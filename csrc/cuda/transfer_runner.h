// Adds to a runner what it costs to serve from host memory: the inputs are copied to the device
// before each request and the outputs back after it, from and to pinned memory, on the same stream.
// The copies are issued here under either host, so that they add the same to every runtime, and
// what differs between hosts stays what the runtime itself does.
#pragma once

#include <memory>
#include <vector>

#include "measure/runner_wrapper.h"

namespace ftax::cuda {

class TransferRunner final : public RunnerWrapper {
 public:
  struct Copy {
    void* target;
    const void* source;
    size_t bytes;
  };

  // `inputs` go from host to device, `outputs` from device to host. `memory_owner` keeps both sides
  // of all of them alive. Throws UnavailableError without a device.
  TransferRunner(std::shared_ptr<Runner> inner, std::vector<Copy> inputs, std::vector<Copy> outputs,
                 std::shared_ptr<void> memory_owner);

  void enqueue() override;

 private:
  std::vector<Copy> inputs_;
  std::vector<Copy> outputs_;
  std::shared_ptr<void> memory_owner_;
};

}  // namespace ftax::cuda
