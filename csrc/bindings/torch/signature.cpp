// Walked for each call, so nothing here allocates but the list of tensors. A tensor that is given
// twice has one place: a replay that took it for two would miss what is written through one of
// them.
#include "bindings/torch/signature.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <utility>

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

// One whose fields are attributes of its own and nothing else.
bool is_dataclass(PyObject* value) {
  const py::handle type = py::type::handle_of(value);
  return py::hasattr(type, "__dataclass_fields__") && !PyType_Check(value);
}

bool is_named_tuple(PyObject* value) {
  return PyTuple_Check(value) && py::hasattr(py::type::handle_of(value), "_fields");
}

// Whether `value` is of the class of that name in a Python module, if anybody has imported that.
bool is_of(PyObject* value, const char* module, const char* name) {
  const auto found = py::reinterpret_steal<py::object>(PyImport_GetModule(py::str(module).ptr()));
  return found && Py_TYPE(value) == reinterpret_cast<PyTypeObject*>(found.attr(name).ptr());
}

bool is_array(PyObject* value) {
  return is_of(value, "numpy", "ndarray") &&
         !py::handle(value).attr("dtype").attr("hasobject").cast<bool>();
}

bool has_same_values(const py::object& array, PyObject* other) {
  const py::handle now(other);
  if (Py_TYPE(array.ptr()) != Py_TYPE(other)) return false;
  for (const char* fact : {"dtype", "shape", "strides"}) {
    if (!array.attr(fact).equal(now.attr(fact))) return false;
  }
  return array.attr("tobytes")().equal(now.attr("tobytes")());
}

// Names of slots, of a class and those that it derives from, as attributes of objects are named.
py::list list_slots(py::handle type) {
  py::list names;
  for (const py::handle base : py::tuple(type.attr("__mro__"))) {
    const py::dict space(base.attr("__dict__"));
    if (!space.contains("__slots__")) continue;
    const py::object slots = space["__slots__"];
    const py::list own =
        py::isinstance<py::str>(slots) ? py::list(py::make_tuple(slots)) : py::list(slots);
    for (const py::handle slot : own) {
      const auto name = slot.cast<std::string>();
      if (name == "__dict__" || name == "__weakref__") continue;
      const bool is_private = name.starts_with("__") && !name.ends_with("__");
      auto owner = base.attr("__name__").cast<std::string>();
      owner.erase(0, owner.find_first_not_of('_'));
      names.append(is_private ? std::string("_").append(owner).append(name) : name);
    }
  }
  return names;
}

// Its dictionary of attributes; null where it has none.
py::object find_attributes(PyObject* value) {
  const auto found = py::reinterpret_steal<py::object>(PyObject_GenericGetDict(value, nullptr));
  if (!found) PyErr_Clear();
  return found;
}

// Where `value` is among the objects around it, from the outermost on; its size: it is none.
size_t find_around(const std::vector<PyObject*>& around, PyObject* value) {
  return static_cast<size_t>(std::find(around.begin(), around.end(), value) - around.begin());
}

// The first class among those that `type` derives from that is not made by Python code.
py::handle find_built_in(py::handle type) {
  for (const py::handle base : py::tuple(type.attr("__mro__"))) {
    if ((reinterpret_cast<PyTypeObject*>(base.ptr())->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) {
      return base;
    }
  }
  return type;
}

PyObject* read_reference(PyObject* reference) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  if (PyWeakref_GetRef(reference, &found) < 0) throw py::error_already_set();
  Py_XDECREF(found);  // what is around holds it
  return found;
#else
  return PyWeakref_GetObject(reference);
#endif
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

Signature::Signature(const py::tuple& args, const py::dict& kwargs, py::object is_data)
    : is_data_(std::move(is_data)) {
  Walk walk;
  args_ = read(args.ptr(), walk);
  kwargs_ = read(kwargs.ptr(), walk);
  is_data_ = {};
}

Signature::Node Signature::read_tensor(PyObject* value, Walk& walk) {
  if (!is_plain_tensor(value)) {
    throw InvalidArgumentError(
        std::string("cannot capture a call with a tensor of type ") + Py_TYPE(value)->tp_name +
        " that is wrapped (torch.func, forward-mode differentiation) or of a "
        "layout other than strided: give plain tensors");
  }
  Node node;
  node.kind = Kind::kTensor;
  node.place = find(walk.tensors, value);
  if (node.place == walk.tensors.size()) {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    facts_.push_back({InputFacts::of(tensor), Py_TYPE(value), tensor.requires_grad(),
                      find_memory(walk.tensors, tensor)});
    walk.tensors.push_back(value);
  }
  return node;
}

void Signature::read_items(PyObject* dict, Node& node, Walk& walk) {
  PyObject *key = nullptr, *item = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &key, &item);) {
    node.keys.push_back(py::reinterpret_borrow<py::object>(key));
    node.items.push_back(read(item, walk));
  }
}

Signature::Node Signature::read(PyObject* value, Walk& walk) {
  if (THPVariable_Check(value)) return read_tensor(value, walk);
  if (++depth_ > kDeepest) {
    throw InvalidArgumentError(
        "cannot capture a call with arguments that hold themselves, or are nested deeper than " +
        std::to_string(kDeepest) + ": give their tensors, in a list or a dictionary");
  }
  Node node = PyDict_CheckExact(value) || PyTuple_CheckExact(value) || PyList_CheckExact(value)
                  ? read_contents(value, walk)
                  : read_other(value, walk);
  --depth_;
  return node;
}

// Of a dictionary, a list or a tuple, or of what derives from one.
Signature::Node Signature::read_contents(PyObject* value, Walk& walk) {
  Node node;
  if (PyDict_Check(value)) {
    node.kind = Kind::kDict;
    read_items(value, node, walk);
    return node;
  }
  node.kind = PyTuple_Check(value) ? Kind::kTuple : Kind::kList;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
    node.items.push_back(read(PySequence_Fast_GET_ITEM(value, i), walk));
  }
  return node;
}

Signature::Node Signature::read_other(PyObject* value, Walk& walk) {
  Node node;
  PyObject* const target = PyWeakref_Check(value) ? read_reference(value) : value;
  node.place = find_around(walk.around, target);
  if (node.place < walk.around.size()) {
    node.kind = target == value ? Kind::kBack : Kind::kWeakBack;
    return node;
  }
  if (is_named_tuple(value) || is_dataclass(value) ||
      (!is_plain_value(value) && !is_data_.is_none() && is_data_(py::handle(value)).cast<bool>())) {
    return read_object(value, walk);
  }
  if (is_array(value)) {
    node.kind = Kind::kArray;
    node.value = py::handle(value).attr("copy")(py::arg("order") = "K");
    return node;
  }
  const bool is_part = !walk.around.empty() && !is_plain_value(value) && !find_attributes(value) &&
                       PyCallable_Check(value) == 0;
  node.kind = is_part ? Kind::kOfType : Kind::kValue;
  node.value = py::reinterpret_borrow<py::object>(value);
  return node;
}

Signature::Node Signature::read_object(PyObject* value, Walk& walk) {
  Node node;
  node.kind = Kind::kObject;
  node.value = py::type::of(py::handle(value));
  walk.around.push_back(value);
  if (const py::object space = find_attributes(value)) read_items(space.ptr(), node, walk);
  node.attributes = node.keys.size();
  for (const py::handle name : list_slots(node.value)) {
    const py::object item = py::getattr(value, name, py::object());
    if (!item) continue;
    node.keys.push_back(py::reinterpret_borrow<py::object>(name));
    node.items.push_back(read(item.ptr(), walk));
  }
  if (PyDict_Check(value) || PyList_Check(value) || PyTuple_Check(value)) {
    node.items.push_back(read_contents(value, walk));
  }
  walk.around.pop_back();
  return node;
}

bool Signature::match_tensor(const Node& node, PyObject* value, Walk& walk) const {
  if (!THPVariable_Check(value) || !is_plain_tensor(value)) return false;
  std::vector<PyObject*>& tensors = walk.tensors;
  const size_t place = find(tensors, value);
  if (place != node.place) return false;
  if (place < tensors.size()) return true;
  const TensorFacts& facts = facts_[place];
  if (!facts.fit(value)) return false;
  if (find_memory(tensors, THPVariable_Unpack(value)) != facts.memory) return false;
  tensors.push_back(value);
  return true;
}

// The first `count`, in their order, which a call may go by.
bool Signature::match_items(const Node& node, PyObject* dict, size_t count, Walk& walk) const {
  if (static_cast<size_t>(PyDict_GET_SIZE(dict)) != count) return false;
  PyObject *key = nullptr, *item = nullptr;
  size_t i = 0;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &key, &item); ++i) {
    if (!is_same_value(node.keys[i].ptr(), key)) return false;
    if (!match(node.items[i], item, walk)) return false;
  }
  return true;
}

bool Signature::match_sequence(const Node& node, PyObject* value, Walk& walk) const {
  if (static_cast<size_t>(PySequence_Fast_GET_SIZE(value)) != node.items.size()) return false;
  for (size_t i = 0; i < node.items.size(); ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(value, static_cast<Py_ssize_t>(i));
    if (!match(node.items[i], item, walk)) return false;
  }
  return true;
}

bool Signature::match_object(const Node& node, PyObject* value, Walk& walk) const {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != node.value.ptr()) return false;
  walk.around.push_back(value);
  const py::object space = find_attributes(value);
  if (space ? !match_items(node, space.ptr(), node.attributes, walk) : node.attributes > 0) {
    return false;
  }
  for (size_t i = node.attributes; i < node.keys.size(); ++i) {
    const py::object item = py::getattr(value, node.keys[i], py::object());
    if (!item || !match(node.items[i], item.ptr(), walk)) return false;
  }
  if (node.items.size() > node.keys.size()) {
    const Node& contents = node.items.back();
    if (contents.kind == Kind::kDict ? !match_items(contents, value, contents.keys.size(), walk)
                                     : !match_sequence(contents, value, walk)) {
      return false;
    }
  }
  walk.around.pop_back();
  return true;
}

bool Signature::match(const Node& node, PyObject* value, Walk& walk) const {
  switch (node.kind) {
    case Kind::kTensor:
      return match_tensor(node, value, walk);
    case Kind::kDict:
      return PyDict_CheckExact(value) && match_items(node, value, node.keys.size(), walk);
    case Kind::kTuple:
      return PyTuple_CheckExact(value) && match_sequence(node, value, walk);
    case Kind::kList:
      return PyList_CheckExact(value) && match_sequence(node, value, walk);
    case Kind::kObject:
      return match_object(node, value, walk);
    case Kind::kArray:
      return has_same_values(node.value, value);
    case Kind::kOfType:
      return Py_TYPE(value) == Py_TYPE(node.value.ptr());
    case Kind::kBack:
      return find_around(walk.around, value) == node.place;
    case Kind::kWeakBack:
      return PyWeakref_Check(value) &&
             find_around(walk.around, read_reference(value)) == node.place;
    case Kind::kValue:
      return is_same_value(node.value.ptr(), value);
  }
  return false;
}

py::object Signature::match(const py::tuple& args, const py::dict& kwargs) const {
  Walk walk;
  walk.tensors.reserve(facts_.size());
  if (!match(args_, args.ptr(), walk) || !match(kwargs_, kwargs.ptr(), walk)) return py::none();
  py::list result(walk.tensors.size());
  for (size_t i = 0; i < walk.tensors.size(); ++i) {
    result[i] = py::reinterpret_borrow<py::object>(walk.tensors[i]);
  }
  return result;
}

py::object Signature::fill_object(const Node& node, const py::list& tensors,
                                  std::vector<py::object>& around) const {
  const bool has_contents = node.items.size() > node.keys.size();
  const Kind contents = has_contents ? node.items.back().kind : Kind::kObject;
  py::tuple given;
  if (contents == Kind::kTuple) {  // which nothing can be put into later
    around.emplace_back();
    given = py::make_tuple(fill(node.items.back(), tensors, around));
    around.pop_back();
  }
  const py::object made = find_built_in(node.value).attr("__new__")(node.value, *given);
  around.push_back(made);
  for (size_t i = 0; i < node.keys.size(); ++i) {
    const py::object item = fill(node.items[i], tensors, around);
    if (i < node.attributes) {  // no __setattr__ of its class is asked
      find_attributes(made.ptr())[node.keys[i]] = item;
    } else if (PyObject_GenericSetAttr(made.ptr(), node.keys[i].ptr(), item.ptr()) != 0) {
      throw py::error_already_set();
    }
  }
  // By what it derives from too: a method of its class may do more.
  if (contents == Kind::kList) {
    find_built_in(node.value).attr("extend")(made, fill(node.items.back(), tensors, around));
  } else if (contents == Kind::kDict) {
    const py::object set = find_built_in(node.value).attr("__setitem__");
    const Node& items = node.items.back();
    for (size_t i = 0; i < items.keys.size(); ++i) {
      set(made, items.keys[i], fill(items.items[i], tensors, around));
    }
  }
  around.pop_back();
  return made;
}

py::object Signature::fill(const Node& node, const py::list& tensors,
                           std::vector<py::object>& around) const {
  switch (node.kind) {
    case Kind::kTensor:
      return tensors[node.place];
    case Kind::kValue:
    case Kind::kOfType:
      return node.value;
    case Kind::kArray:
      return node.value.attr("copy")(py::arg("order") = "K");
    case Kind::kBack:
      return around.at(node.place);
    case Kind::kWeakBack:
      return py::module_::import("weakref").attr("ref")(around.at(node.place));
    case Kind::kObject:
      return fill_object(node, tensors, around);
    case Kind::kDict: {
      py::dict result;
      for (size_t i = 0; i < node.items.size(); ++i) {
        result[node.keys[i]] = fill(node.items[i], tensors, around);
      }
      return result;
    }
    case Kind::kTuple:
    case Kind::kList:
      break;
  }
  py::list items;
  for (const Node& item : node.items) items.append(fill(item, tensors, around));
  return node.kind == Kind::kList ? py::object(items) : py::object(py::tuple(items));
}

py::tuple Signature::fill(const py::list& tensors) const {
  std::vector<py::object> around;
  return py::make_tuple(fill(args_, tensors, around), fill(kwargs_, tensors, around));
}

void Signature::list_objects(const Node& node, py::list& found) {
  const bool is_known = !node.value || node.kind == Kind::kArray ||
                        (node.kind == Kind::kValue && is_plain_value(node.value.ptr()));
  if (!is_known) found.append(node.value);  // also the class of a container
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
  } else if (node.kind == Kind::kArray) {
    const auto shape = py::str(node.value.attr("shape")).cast<std::string>();
    words.push_back("an array of numpy " + shape + " with these values");
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    const size_t first = words.size();
    describe(node.items[i], words);
    if (i < node.keys.size() && first < words.size()) {
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

int Signature::traverse(visitproc visit, void* arg) const {
  const auto look = [&](const auto& self, const Node& node) -> int {
    Py_VISIT(node.value.ptr());
    for (const py::object& key : node.keys) Py_VISIT(key.ptr());
    for (const Node& item : node.items) {
      if (const int stopped = self(self, item)) return stopped;
    }
    return 0;
  };
  if (const int stopped = look(look, args_)) return stopped;
  return look(look, kwargs_);
}

// Moved out first: what it holds may ask for it while it goes.
void Signature::clear() {
  const Node args = std::exchange(args_, {});
  const Node kwargs = std::exchange(kwargs_, {});
}

}  // namespace ftax
