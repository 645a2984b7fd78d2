// Constants of a schema as the Python objects that a person would write: an int that stands for a
// dtype becomes torch.float32, not 6.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <pybind11/pybind11.h>

namespace ftax {

// `type` is the schema's real type of the argument (Argument::real_type).
[[nodiscard]] pybind11::object to_python(const c10::IValue& value, const c10::TypePtr& type);

}  // namespace ftax
