// Which arguments an operator call writes into. Mostly its schema says so; there is
// a list of operators whose schema does not: statistics that batch norm moves on, and the state
// from which cuDNN's recurrent layers draw.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace ftax {

// What an operator writes without saying so.
struct UndeclaredWrites {
  std::string flag;  // the argument that has to be true for it; "": in every call
  std::vector<std::string> arguments;
};

// By the operator's name, without its overload.
[[nodiscard]] const std::unordered_map<std::string, UndeclaredWrites>& list_undeclared_writes();

// One value an argument: whether the call writes into it, declared and undeclared.
[[nodiscard]] std::vector<bool> find_written(const c10::OperatorHandle& op,
                                             c10::ArrayRef<c10::IValue> arguments);

}  // namespace ftax
