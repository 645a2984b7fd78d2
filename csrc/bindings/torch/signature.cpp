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

// Of torch.func's transforms, and of forward-mode differentiation: more than memory and a layout.
bool is_wrapped(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers({c10::DispatchKey::FuncTorchBatched,
                                           c10::DispatchKey::FuncTorchGradWrapper,
                                           c10::DispatchKey::Functionalize});
  return tensor.key_set().has_any(kWrappers) || tensor._fw_grad(/*level=*/0).defined();
}

constexpr int kDeepest =
    200;  // what is nested deeper holds itself, as a tree with its parents does

bool is_plain_tensor(PyObject* value) {
  if (!THPVariable_CheckExact(value)) return false;
  const at::Tensor& tensor = THPVariable_Unpack(value);
  return tensor.layout() == at::kStrided && !tensor.is_nested() && !tensor.is_conj() &&
         !tensor.is_neg() && !tensor.is_meta() && !is_wrapped(tensor);
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

bool is_named_tuple(PyObject* value) {
  return PyTuple_Check(value) && py::hasattr(py::type::handle_of(value), "_fields");
}

// One whose fields are attributes of its own and nothing else.
bool is_dataclass(PyObject* value) {
  const py::handle type = py::type::handle_of(value);
  return py::hasattr(type, "__dataclass_fields__") && py::hasattr(value, "__dict__") &&
         !PyType_Check(value) && !PyDict_Check(value) && !PyList_Check(value) &&
         !PyTuple_Check(value);
}

// As messages name them: a name as it is, and no text of a tensor or of a long value.
std::string tell(const char* helper, const py::object& value) {
  return py::module_::import("ftax.errors").attr(helper)(value).cast<std::string>();
}

std::string name_key(const py::object& key) {
  return py::isinstance<py::str>(key) ? key.cast<std::string>() : tell("name_key", key);
}

}  // namespace

bool Signature::TensorFacts::fit(PyObject* value) const {
  const at::Tensor& tensor = THPVariable_Unpack(value);
  return Py_TYPE(value) == type && layout.fit(tensor) && tensor.requires_grad() == requires_grad;
}

Signature::Signature(const py::tuple& args, const py::dict& kwargs) {
  Tensors tensors;
  args_ = read(args.ptr(), tensors);
  kwargs_ = read(kwargs.ptr(), tensors);
}

Signature::Node Signature::read_tensor(PyObject* value, Tensors& tensors) {
  if (!is_plain_tensor(value)) {
    throw InvalidArgumentError(
        std::string("cannot capture a call with a tensor of type ") + Py_TYPE(value)->tp_name +
        " that is wrapped (torch.func, forward-mode differentiation) or of a "
        "layout other than strided: give plain tensors");
  }
  Node node;
  node.kind = Kind::kTensor;
  node.place = find(tensors, value);
  if (node.place == tensors.size()) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    facts_.push_back({InputFacts::of(tensor), Py_TYPE(value), tensor.requires_grad(),
                      find_memory(tensors, tensor)});
    tensors.push_back(value);
  }
  return node;
}

void Signature::read_items(PyObject* value, Node& node, Tensors& tensors) {
  PyObject *key = nullptr, *item = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(value, &position, &key, &item);) {
    node.keys.push_back(py::reinterpret_borrow<py::object>(key));
    node.items.push_back(read(item, tensors));
  }
}

Signature::Node Signature::read(PyObject* value, Tensors& tensors) {
  if (THPVariable_Check(value)) return read_tensor(value, tensors);
  if (++depth_ > kDeepest) {
    throw InvalidArgumentError(
        "cannot capture a call with arguments that hold themselves, or are nested deeper than " +
        std::to_string(kDeepest) + ": give their tensors, in a list or a dictionary");
  }
  Node node = read_container(value, tensors);
  --depth_;
  return node;
}

Signature::Node Signature::read_container(PyObject* value, Tensors& tensors) {
  Node node;
  if (PyDict_CheckExact(value)) {
    node.kind = Kind::kDict;
    read_items(value, node, tensors);
    return node;
  }
  if (is_dataclass(value)) {
    node.kind = Kind::kDataclass;
    node.value = py::type::of(py::handle(value));
    const py::object fields = py::getattr(value, "__dict__");
    read_items(fields.ptr(), node, tensors);
    return node;
  }
  const bool is_named = is_named_tuple(value);
  if (!is_named && !PyTuple_CheckExact(value) && !PyList_CheckExact(value)) {
    node.value = py::reinterpret_borrow<py::object>(value);
    return node;
  }
  node.kind = is_named ? Kind::kNamedTuple : PyTuple_CheckExact(value) ? Kind::kTuple : Kind::kList;
  if (is_named) node.value = py::type::of(py::handle(value));
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
  const TensorFacts& facts = facts_[place];
  if (!facts.fit(value)) return false;
  if (find_memory(tensors, THPVariable_Unpack(value)) != facts.memory) return false;
  tensors.push_back(value);
  return true;
}

// In their order, which a call may go by.
bool Signature::match_items(const Node& node, PyObject* value, Tensors& tensors) const {
  if (static_cast<size_t>(PyDict_GET_SIZE(value)) != node.items.size()) return false;
  PyObject *key = nullptr, *item = nullptr;
  size_t i = 0;
  for (Py_ssize_t position = 0; PyDict_Next(value, &position, &key, &item); ++i) {
    if (!is_same_value(node.keys[i].ptr(), key)) return false;
    if (!match(node.items[i], item, tensors)) return false;
  }
  return true;
}

bool Signature::match(const Node& node, PyObject* value, Tensors& tensors) const {
  const auto has_class = [&](const py::object& type) {
    return reinterpret_cast<PyObject*>(Py_TYPE(value)) == type.ptr();
  };
  switch (node.kind) {
    case Kind::kTensor:
      return match_tensor(node, value, tensors);
    case Kind::kDict:
      return PyDict_CheckExact(value) && match_items(node, value, tensors);
    case Kind::kDataclass: {
      if (!has_class(node.value)) return false;
      const py::object fields = py::getattr(value, "__dict__");
      return match_items(node, fields.ptr(), tensors);
    }
    case Kind::kValue:
      return is_same_value(node.value.ptr(), value);
    case Kind::kTuple:
      if (!PyTuple_CheckExact(value)) return false;
      break;
    case Kind::kList:
      if (!PyList_CheckExact(value)) return false;
      break;
    case Kind::kNamedTuple:
      if (!has_class(node.value)) return false;
      break;
  }
  if (static_cast<size_t>(PySequence_Fast_GET_SIZE(value)) != node.items.size()) return false;
  for (size_t i = 0; i < node.items.size(); ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(value, static_cast<Py_ssize_t>(i));
    if (!match(node.items[i], item, tensors)) return false;
  }
  return true;
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
  if (node.kind == Kind::kTensor) return tensors[node.place];
  if (node.kind == Kind::kValue) return node.value;
  py::list items;
  for (const Node& item : node.items) items.append(fill(item, tensors));
  if (node.kind == Kind::kList) return items;
  if (node.kind == Kind::kTuple) return py::tuple(items);
  if (node.kind == Kind::kNamedTuple) return node.value.attr("_make")(items);
  py::dict result;
  for (size_t i = 0; i < node.items.size(); ++i) result[node.keys[i]] = items[i];
  if (node.kind == Kind::kDict) return result;
  // Not by its class, whose own __new__ may want arguments.
  const py::handle plain(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  const py::object made = plain.attr("__new__")(node.value);
  made.attr("__dict__").attr("update")(result);
  return made;
}

py::tuple Signature::fill(const py::list& tensors) const {
  return py::make_tuple(fill(args_, tensors), fill(kwargs_, tensors));
}

void Signature::list_objects(const Node& node, py::list& found) {
  const bool is_plain =
      !node.value || (node.kind == Kind::kValue && is_plain_value(node.value.ptr()));
  if (!is_plain) found.append(node.value);  // also the class of a container
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
    const InputFacts& facts = facts_[node.place].layout;
    words.push_back(c10::str(facts.dtype, at::IntArrayRef(facts.sizes), " on ", facts.device));
  } else if (node.kind == Kind::kValue && is_plain_value(node.value.ptr())) {
    words.push_back(tell("describe_value", node.value));
  } else if (node.kind == Kind::kValue) {
    words.push_back(std::string("one ") + Py_TYPE(node.value.ptr())->tp_name);
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    const size_t first = words.size();
    describe(node.items[i], words);
    if (!node.keys.empty() && first < words.size()) {
      words[first] = name_key(node.keys[i]) + "=" + words[first];
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
