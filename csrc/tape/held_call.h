// A collective between two CUDA graphs: one call of a tape, made again on the tensors that it was
// given, into which the graph before it writes and from which the one after it reads.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "tape/program.h"

namespace ftax {

class HeldCall {
 public:
  HeldCall(const Call& call, std::vector<c10::IValue> arguments);

  // Waits for the result where the call did that was recorded; else `wait` is for the caller.
  void run();
  // Does nothing where nothing is to be waited for.
  void wait();

 private:
  c10::OperatorHandle op_;
  std::vector<c10::IValue> arguments_;
  bool overlaps_;
  c10::IValue work_;
};

// c10d's Work among results, which is the last; None for calls that returned without any.
[[nodiscard]] c10::IValue find_work(const std::vector<c10::IValue>& results);
void wait_for(const c10::IValue& work);

}  // namespace ftax
