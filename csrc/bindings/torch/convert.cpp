// IValue stores dtypes, layouts and memory formats as integers; only the schema tells them apart.
#include "bindings/torch/convert.h"

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

namespace py = pybind11;

namespace ftax {

py::object to_python(const c10::IValue& value, const c10::TypePtr& type) {
  c10::TypePtr inner = type;
  if (const auto optional = inner->cast<c10::OptionalType>()) inner = optional->getElementType();
  if (value.isInt()) {
    const auto borrow = [](auto* object) {
      return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(object));
    };
    switch (inner->kind()) {
      case c10::TypeKind::ScalarTypeType:
        return borrow(torch::getTHPDtype(static_cast<at::ScalarType>(value.toInt())));
      case c10::TypeKind::LayoutType:
        return borrow(torch::getTHPLayout(static_cast<at::Layout>(value.toInt())));
      case c10::TypeKind::MemoryFormatType:
        return borrow(
            torch::utils::getTHPMemoryFormat(static_cast<at::MemoryFormat>(value.toInt())));
      default:
        break;
    }
  }
  return torch::jit::toPyObject(value);
}

}  // namespace ftax
