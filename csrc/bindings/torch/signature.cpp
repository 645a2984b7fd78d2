// Walked for each call, so nothing here allocates but the list of tensors. A tensor that is given
// twice has one place: a replay that took it for two would miss what is written through one of
// them.
#include "bindings/torch/signature.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "bindings/torch/python_values.h"
#include "core/error.h"

namespace ftax {
namespace {

// Strides of dimensions of size 1 say nothing, and torch keeps them or not.
bool has_strides(const at::Tensor& tensor, const std::vector<int64_t>& strides) {
  if (tensor.numel() == 0) return true;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (tensor.sizes()[i] > 1 && tensor.strides()[i] != strides[i]) return false;
  }
  return true;
}

bool is_plain_tensor(PyObject* value) {
  if (!THPVariable_CheckExact(value)) return false;
  const at::Tensor& tensor = THPVariable_Unpack(value);
  return tensor.layout() == at::kStrided && !tensor.is_nested() && !tensor.is_conj() &&
         !tensor.is_neg() && !tensor.is_meta();
}

size_t find(const std::vector<PyObject*>& tensors, PyObject* tensor) {
  return static_cast<size_t>(std::find(tensors.begin(), tensors.end(), tensor) - tensors.begin());
}

// The first of `tensors`, or else the place behind them, that has the memory of `tensor`.
size_t find_memory(const std::vector<PyObject*>& tensors, const at::Tensor& tensor) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (THPVariable_Unpack(tensors[i]).is_alias_of(tensor)) return i;
  }
  return tensors.size();
}

// A tuple with names, of a class of its own, is made by its class.
bool is_exact_container(PyObject* value) {
  return PyTuple_CheckExact(value) || PyList_CheckExact(value) || PyDict_CheckExact(value);
}

}  // namespace

bool Signature::TensorFacts::fit(const at::Tensor& tensor) const {
  return tensor.scalar_type() == dtype && tensor.sizes() == at::IntArrayRef(sizes) &&
         tensor.device() == device && tensor.requires_grad() == requires_grad &&
         has_strides(tensor, strides);
}

Signature::Signature(const py::tuple& args, const py::dict& kwargs) {
  Tensors tensors;
  args_ = read(args.ptr(), tensors);
  kwargs_ = read(kwargs.ptr(), tensors);
}

Signature::Node Signature::read_tensor(PyObject* value, Tensors& tensors) {
  if (!is_plain_tensor(value)) {
    throw InvalidArgumentError(std::string("cannot capture a call with a tensor of type ") +
                               Py_TYPE(value)->tp_name +
                               " or layout other than strided: give plain tensors");
  }
  Node node;
  node.kind = Kind::kTensor;
  node.place = find(tensors, value);
  if (node.place == tensors.size()) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    facts_.push_back({tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type(),
                      tensor.device(), tensor.requires_grad(), find_memory(tensors, tensor)});
    tensors.push_back(value);
  }
  return node;
}

Signature::Node Signature::read(PyObject* value, Tensors& tensors) {
  if (THPVariable_Check(value)) return read_tensor(value, tensors);
  Node node;
  node.value = py::reinterpret_borrow<py::object>(value);
  if (!is_exact_container(value)) return node;
  node.value = py::object();
  if (PyDict_CheckExact(value)) {
    node.kind = Kind::kDict;
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(value, &position, &key, &item);) {
      node.keys.push_back(py::reinterpret_borrow<py::object>(key));
      node.items.push_back(read(item, tensors));
    }
    return node;
  }
  node.kind = PyTuple_CheckExact(value) ? Kind::kTuple : Kind::kList;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
    node.items.push_back(read(PySequence_Fast_GET_ITEM(value, i), tensors));
  }
  return node;
}

bool Signature::match_tensor(const Node& node, PyObject* value, Tensors& tensors) const {
  if (!THPVariable_Check(value) || !is_plain_tensor(value)) return false;
  const size_t place = find(tensors, value);
  if (place != node.place) return false;
  if (place < tensors.size()) return true;
  const at::Tensor& tensor = THPVariable_Unpack(value);
  const TensorFacts& facts = facts_[place];
  if (!facts.fit(tensor) || find_memory(tensors, tensor) != facts.memory) return false;
  tensors.push_back(value);
  return true;
}

bool Signature::match(const Node& node, PyObject* value, Tensors& tensors) const {
  const auto fits = [&](size_t i, PyObject* item) { return match(node.items[i], item, tensors); };
  switch (node.kind) {
    case Kind::kTensor:
      return match_tensor(node, value, tensors);
    case Kind::kTuple:
    case Kind::kList: {
      const bool is_tuple = node.kind == Kind::kTuple;
      if (!(is_tuple ? PyTuple_CheckExact(value) : PyList_CheckExact(value))) return false;
      if (static_cast<size_t>(PySequence_Fast_GET_SIZE(value)) != node.items.size()) return false;
      for (size_t i = 0; i < node.items.size(); ++i) {
        if (!fits(i, PySequence_Fast_GET_ITEM(value, static_cast<Py_ssize_t>(i)))) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (!PyDict_CheckExact(value)) return false;
      if (static_cast<size_t>(PyDict_GET_SIZE(value)) != node.items.size()) return false;
      PyObject *key = nullptr, *item = nullptr;
      size_t i = 0;  // in their order, which a call may go by
      for (Py_ssize_t position = 0; PyDict_Next(value, &position, &key, &item); ++i) {
        if (!is_same_value(node.keys[i].ptr(), key) || !fits(i, item)) return false;
      }
      return true;
    }
    case Kind::kValue:
      break;
  }
  return is_same_value(node.value.ptr(), value);
}

py::object Signature::match(const py::tuple& args, const py::dict& kwargs) const {
  Tensors tensors;
  tensors.reserve(facts_.size());
  if (!match(args_, args.ptr(), tensors) || !match(kwargs_, kwargs.ptr(), tensors)) {
    return py::none();
  }
  py::list result(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    result[i] = py::reinterpret_borrow<py::object>(tensors[i]);
  }
  return result;
}

py::object Signature::fill(const Node& node, const py::list& tensors) const {
  switch (node.kind) {
    case Kind::kTensor:
      return tensors[node.place];
    case Kind::kTuple: {
      py::tuple result(node.items.size());
      for (size_t i = 0; i < node.items.size(); ++i) result[i] = fill(node.items[i], tensors);
      return result;
    }
    case Kind::kList: {
      py::list result;
      for (const Node& item : node.items) result.append(fill(item, tensors));
      return result;
    }
    case Kind::kDict: {
      py::dict result;
      for (size_t i = 0; i < node.items.size(); ++i) {
        result[node.keys[i]] = fill(node.items[i], tensors);
      }
      return result;
    }
    case Kind::kValue:
      break;
  }
  return node.value;
}

py::tuple Signature::fill(const py::list& tensors) const {
  return py::make_tuple(fill(args_, tensors), fill(kwargs_, tensors));
}

void Signature::list_objects(const Node& node, py::list& found) {
  if (node.kind == Kind::kValue && !is_plain_value(node.value.ptr())) found.append(node.value);
  for (const Node& item : node.items) list_objects(item, found);
}

py::list Signature::list_objects() const {
  py::list found;
  list_objects(args_, found);
  list_objects(kwargs_, found);
  return found;
}

void Signature::describe(const Node& node, std::vector<std::string>& words) const {
  if (node.kind == Kind::kTensor) {
    const TensorFacts& facts = facts_[node.place];
    words.push_back(c10::str(facts.dtype, at::IntArrayRef(facts.sizes), " on ", facts.device));
  } else if (node.kind == Kind::kValue && is_plain_value(node.value.ptr())) {
    words.push_back(py::repr(node.value).cast<std::string>());
  } else if (node.kind == Kind::kValue) {
    words.push_back(std::string("one ") + Py_TYPE(node.value.ptr())->tp_name);
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    const size_t first = words.size();
    describe(node.items[i], words);
    if (node.kind == Kind::kDict && first < words.size()) {
      words[first] = py::str(node.keys[i]).cast<std::string>() + "=" + words[first];
    }
  }
}

std::string Signature::describe() const {
  std::vector<std::string> words;
  describe(args_, words);
  describe(kwargs_, words);
  std::string result;
  for (const std::string& word : words) result += (result.empty() ? "" : ", ") + word;
  return result.empty() ? "no arguments" : result;
}

}  // namespace ftax
