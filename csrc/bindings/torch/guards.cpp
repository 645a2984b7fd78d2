// A place is compared by identity first. Only a number or string that was replaced by an equal one
// is looked at closer, and is from then on the one that is expected.
#include "bindings/torch/guards.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "bindings/torch/python_values.h"

namespace ftax {
namespace {

py::object hold(PyObject* value) { return py::reinterpret_borrow<py::object>(value); }

// Whether `now` still is what was expected, which it then becomes.
bool accept(py::object& expected, PyObject* now) {
  if (expected.ptr() == now) return true;
  if (!is_same_value(expected.ptr(), now)) return false;
  expected = hold(now);
  return true;
}

PyObject* read_cell(PyObject* cell) { return PyCell_GET(cell); }

c10::TensorImpl* find_gradient(const at::Tensor& tensor) {
  const at::Tensor& gradient = tensor.grad();
  return gradient.defined() ? gradient.unsafeGetTensorImpl() : nullptr;
}

// Borrowed; nullptr without an error where the key is absent.
PyObject* find_item(PyObject* dict, PyObject* key) {
  PyObject* const value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

}  // namespace

void Guards::add(Kind kind, const py::object& owner, std::vector<py::object> keys,
                 std::vector<py::object> values) {
  places_.push_back({kind, 0, owner, std::move(keys), std::move(values)});
}

void Guards::add_items(const py::dict& dict, const py::list& keys) {
  std::vector<py::object> held, values;
  for (const py::handle key : keys) {
    held.push_back(hold(key.ptr()));
    values.push_back(hold(find_item(dict.ptr(), key.ptr())));
  }
  add(Kind::kItems, dict, std::move(held), std::move(values));
}

void Guards::add_dict(const py::dict& dict) {
  std::vector<py::object> keys, values;
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(dict.ptr(), &position, &key, &value);) {
    keys.push_back(hold(key));
    values.push_back(hold(value));
  }
  add(Kind::kDict, dict, std::move(keys), std::move(values));
}

void Guards::add_sequence(const py::object& list_or_tuple) {
  std::vector<py::object> values;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list_or_tuple.ptr()); ++i) {
    values.push_back(hold(PySequence_Fast_GET_ITEM(list_or_tuple.ptr(), i)));
  }
  add(Kind::kSequence, list_or_tuple, {}, std::move(values));
}

void Guards::add_set(const py::object& set) {
  std::vector<py::object> values;
  for (const py::handle item : set) values.push_back(hold(item.ptr()));
  add(Kind::kSet, set, {}, std::move(values));
}

void Guards::add_cell(const py::object& cell) {
  add(Kind::kCell, cell, {}, {hold(read_cell(cell.ptr()))});
}

void Guards::add_attribute(const py::object& object, const py::str& name) {
  add(Kind::kAttribute, object, {name}, {py::getattr(object, name, py::object())});
}

Guards::TensorState Guards::TensorState::of(const at::Tensor& tensor, bool gradient) {
  const bool strided = tensor.layout() == at::kStrided && !tensor.is_nested();
  return {tensor,
          strided && tensor.has_storage() ? tensor.const_data_ptr() : nullptr,
          strided ? tensor.sizes().vec() : std::vector<int64_t>{},
          strided ? tensor.strides().vec() : std::vector<int64_t>{},
          tensor.scalar_type(),
          tensor.requires_grad(),
          gradient ? std::optional(find_gradient(tensor)) : std::nullopt};
}

bool Guards::TensorState::holds() const {
  if (tensor.requires_grad() != requires_grad || tensor.scalar_type() != dtype) return false;
  if (gradient.has_value() && find_gradient(tensor) != *gradient) return false;
  if (memory == nullptr) return true;
  return tensor.const_data_ptr() == memory && tensor.sizes() == at::IntArrayRef(sizes) &&
         tensor.strides() == at::IntArrayRef(strides);
}

void Guards::add_tensor(const at::Tensor& tensor, bool gradient) {
  places_.push_back({Kind::kTensor, tensors_.size(), {}, {}, {}});
  tensors_.push_back(TensorState::of(tensor, gradient));
}

void Guards::add_switches(const std::string& device) {
  device_ = c10::Device(device);
  switches_ = ThreadState::capture(*device_);
  places_.push_back({Kind::kSwitches, 0, {}, {}, {}});
}

bool Guards::hold_items(Place& place) {
  for (size_t i = 0; i < place.keys.size(); ++i) {
    if (!accept(place.values[i], find_item(place.owner.ptr(), place.keys[i].ptr()))) return false;
  }
  return true;
}

bool Guards::holds_dict(Place& place) {
  if (static_cast<size_t>(PyDict_GET_SIZE(place.owner.ptr())) != place.keys.size()) return false;
  PyObject *key = nullptr, *value = nullptr;
  size_t i = 0;
  for (Py_ssize_t position = 0; PyDict_Next(place.owner.ptr(), &position, &key, &value); ++i) {
    if (!accept(place.keys[i], key) || !accept(place.values[i], value)) return false;
  }
  return true;
}

bool Guards::holds_sequence(Place& place) {
  PyObject* const owner = place.owner.ptr();
  if (static_cast<size_t>(PySequence_Fast_GET_SIZE(owner)) != place.values.size()) return false;
  for (size_t i = 0; i < place.values.size(); ++i) {
    if (!accept(place.values[i], PySequence_Fast_GET_ITEM(owner, static_cast<Py_ssize_t>(i)))) {
      return false;
    }
  }
  return true;
}

bool Guards::holds_set(const Place& place) {
  if (static_cast<size_t>(PySet_GET_SIZE(place.owner.ptr())) != place.values.size()) return false;
  for (const py::object& value : place.values) {
    const int found = PySet_Contains(place.owner.ptr(), value.ptr());
    if (found < 0) throw py::error_already_set();
    if (found == 0) return false;
  }
  return true;
}

// Those by which eager would call other operators or kernels. The stream is the caller's to choose.
bool Guards::hold_switches() const {
  ThreadState now = ThreadState::capture(*device_);
  now.stream = switches_->stream;
  now.inference = switches_->inference;  // the same operators run under no_grad
  if (!switches_->describe_change(now).empty()) return false;
  return c10::impl::TorchDispatchModeTLS::stack_len() == 0 &&
         !at::impl::torch_function_mode_enabled();
}

bool Guards::holds(Place& place) const {
  switch (place.kind) {
    case Kind::kItems:
      return hold_items(place);
    case Kind::kDict:
      return holds_dict(place);
    case Kind::kSequence:
      return holds_sequence(place);
    case Kind::kSet:
      return holds_set(place);
    case Kind::kCell:
      return accept(place.values[0], read_cell(place.owner.ptr()));
    case Kind::kAttribute: {
      const py::object now = py::getattr(place.owner, place.keys[0], py::object());
      return accept(place.values[0], now.ptr());
    }
    case Kind::kTensor:
      return tensors_[place.index].holds();
    case Kind::kSwitches:
      return hold_switches();
  }
  return false;
}

int64_t Guards::find_change() {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!holds(places_[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace ftax
