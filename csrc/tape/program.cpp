// The printable name of a step.
#include "tape/program.h"

namespace ftax {

std::string Step::operator_name() const {
  if (!op.has_value()) return "ftax::fill";
  const c10::OperatorName& name = op->operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

}  // namespace ftax
