// A collective between two CUDA graphs: one call of a tape, made again on the tensors that it was
// given, into which the graph before it writes and from which the one after it reads.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "tape/program.h"

namespace ftax {

using Work = c10::intrusive_ptr<c10d::Work>;

class HeldCall {
 public:
  HeldCall(const Call& call, std::vector<c10::IValue> arguments);

  // As in a replay of a tape, without autograd and autocast. Waits for the result where the call
  // did that was recorded; else `wait` is for the caller.
  void run();
  // Does nothing where nothing is to be waited for.
  void wait();

 private:
  c10::OperatorHandle op_;
  std::vector<c10::IValue> arguments_;
  bool overlaps_;
  Work work_;
};

// Among the results of a collective it is the last. Null where there is nothing to wait for: NCCL
// works on the current stream unless it is asked not to.
[[nodiscard]] Work find_work(const std::vector<c10::IValue>& results);

}  // namespace ftax
