// In C++ because these run in front of each call, and over some hundred thousand objects, where
// Python takes ten times as long.
#include "bindings/torch/graph_arguments.h"

#include <torch/csrc/autograd/python_variable.h>

#include <unordered_set>
#include <utility>

namespace ftax {

GraphArguments::GraphArguments(py::tuple args, std::vector<size_t> inputs)
    : args_(std::move(args)), inputs_(std::move(inputs)) {
  std::vector<bool> is_input(args_.size());
  for (const size_t place : inputs_) is_input.at(place) = true;
  for (size_t i = 0; i < args_.size(); ++i) {
    if (!THPVariable_Check(args_[i].ptr())) continue;
    const at::Tensor& tensor = THPVariable_Unpack(args_[i].ptr());
    const void* memory = is_input[i] ? nullptr : tensor.const_data_ptr();
    tensors_.push_back({i, tensor.sizes().vec(), tensor.strides().vec(), tensor.options(), memory});
  }
}

std::optional<std::vector<at::Tensor>> GraphArguments::match(const py::tuple& args) const {
  if (args.size() != args_.size()) return std::nullopt;
  size_t next = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool is_tensor = next < tensors_.size() && tensors_[next].place == i;
    if (is_tensor != THPVariable_Check(args[i].ptr())) return std::nullopt;
    if (is_tensor ? !is_like(tensors_[next++], THPVariable_Unpack(args[i].ptr()))
                  : !args[i].equal(args_[i])) {
      return std::nullopt;
    }
  }
  std::vector<at::Tensor> inputs;
  inputs.reserve(inputs_.size());
  for (const size_t place : inputs_) inputs.push_back(THPVariable_Unpack(args[place].ptr()));
  return inputs;
}

int GraphArguments::traverse(visitproc visit, void* arg) const {
  Py_VISIT(args_.ptr());
  return 0;
}

void GraphArguments::clear() { const py::tuple args = std::exchange(args_, py::tuple()); }

bool GraphArguments::is_like(const Seen& seen, const at::Tensor& tensor) {
  return (seen.memory == nullptr || tensor.const_data_ptr() == seen.memory) &&
         tensor.sizes() == seen.sizes && tensor.strides() == seen.strides &&
         tensor.scalar_type() == c10::typeMetaToScalarType(seen.options.dtype()) &&
         tensor.device() == seen.options.device();
}

py::list find_functions(const py::list& objects, const py::tuple& codes) {
  std::unordered_set<PyObject*> wanted;
  for (const py::handle code : codes) wanted.insert(code.ptr());
  py::list found;
  for (const py::handle item : objects) {
    if (PyFunction_Check(item.ptr()) && wanted.contains(PyFunction_GET_CODE(item.ptr()))) {
      found.append(item);
    }
  }
  return found;
}

}  // namespace ftax
