// Calls an operator through its C++ signature instead of boxed values, as `at::add(...)` does. The
// tape uses it where it can: the arguments are decoded when the tape is made, so that a replayed
// call costs what a hand-written one costs.
#pragma once

#include <memory>
#include <vector>

#include "tape/program.h"

namespace ftax {

class TypedCall {
 public:
  TypedCall() = default;
  TypedCall(const TypedCall&) = delete;
  TypedCall& operator=(const TypedCall&) = delete;
  virtual ~TypedCall() = default;

  // Reads its tensors from `slots` and writes its result there.
  virtual void run(std::vector<c10::IValue>& slots) = 0;
};

// nullptr if the operator's signature is not among those that typed_call.cpp lists: the call then
// has to be boxed, which does the same and costs more.
[[nodiscard]] std::unique_ptr<TypedCall> make_typed_call(const Call& call);

}  // namespace ftax
