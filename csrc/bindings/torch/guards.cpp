// Places of one kind lie in one table, and the tables are looked at in the order of what changes
// most often.
#include "bindings/torch/guards.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "bindings/torch/python_values.h"

// Guards read objects of the interpreter where it keeps them: versions of dictionaries, the
// dictionary of a class, fields of functions, cells and sets. For another Python, see that these
// are there and mean the same, here, in dict_guards.cpp and in watched_dicts.cpp, run
// tests/unit/captures, and widen this and requires-python in pyproject.toml.
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000 || defined(Py_GIL_DISABLED)
#error "ftax is for Python 3.11 to 3.13, with the GIL; see csrc/bindings/torch/guards.cpp"
#endif

namespace ftax {
namespace {

// Of torch.func or of autograd, which does to each call what no replay does.
bool is_inside_a_mode() {
  return c10::impl::tls_is_dispatch_key_included(
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         torch::autograd::AnomalyMode::is_enabled() ||
         !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

template <class Place>
const Place* find(const std::vector<Place>& places, size_t place) {
  for (const Place& it : places) {
    if (it.place == place) return &it;
  }
  return nullptr;
}

}  // namespace

void Guards::add_items(const py::dict& dict, const py::list& keys) {
  dicts_.add_items(dict, keys, size_++);
}

void Guards::add_dict(const py::dict& dict) { dicts_.add_whole(dict, size_++); }

// The dictionary behind the proxy that Python shows of a class.
void Guards::add_class_items(const py::type& type, const py::list& keys) {
  PyObject* const dict = reinterpret_cast<PyTypeObject*>(type.ptr())->tp_dict;
  add_items(py::reinterpret_borrow<py::dict>(dict), keys);
}

void Guards::add_sequence(const py::object& list_or_tuple) {
  const size_t place = size_++;
  if (PyTuple_CheckExact(list_or_tuple.ptr())) return;  // what is in a tuple stays in it
  Items list{.owner = list_or_tuple, .expected = {}, .place = place};
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list_or_tuple.ptr()); ++i) {
    list.expected.push_back(hold(PySequence_Fast_GET_ITEM(list_or_tuple.ptr(), i)));
  }
  lists_.push_back(std::move(list));
}

void Guards::add_set(const py::object& set) {
  Items items{.owner = set, .expected = {}, .place = size_++};
  for (const py::handle item : set) items.expected.push_back(hold(item.ptr()));
  sets_.push_back(std::move(items));
}

void Guards::add_field(const py::object& owner, PyObject* const* address, size_t place) {
  fields_.push_back({address, hold(*address), place});
  field_owners_.push_back(owner);
}

void Guards::add_cell(const py::object& cell) {
  add_field(cell, &reinterpret_cast<PyCellObject*>(cell.ptr())->ob_ref, size_++);
}

void Guards::add_class(const py::object& object) {
  add_field(object, reinterpret_cast<PyObject* const*>(&object.ptr()->ob_type), size_++);
}

bool Guards::add_dict_of(const py::object& object) {
  PyObject* const* const dict = _PyObject_GetDictPtr(object.ptr());
  if (dict == nullptr || *dict == nullptr) return false;
  add_field(object, dict, size_++);
  return true;
}

void Guards::add_function(const py::object& function) {
  const auto* const fields = reinterpret_cast<PyFunctionObject*>(function.ptr());
  const size_t place = size_++;
  for (PyObject* const* const field :
       {&fields->func_code, &fields->func_defaults, &fields->func_kwdefaults}) {
    add_field(function, field, place);
  }
}

void Guards::add_attribute(const py::object& object, const py::str& name) {
  attributes_.push_back({object, name, py::getattr(object, name, py::object()), size_++});
}

void Guards::add_tensor(const at::Tensor& tensor, bool gradient, bool hooks) {
  tensors_.add(tensor, size_++, gradient, hooks);
}

void Guards::add_switches(const std::string& device) {
  const c10::Device where(device);
  switches_ = Switches{where, ThreadState::capture(where), size_++};
}

bool Guards::holds_list(Items& list) {
  PyObject* const owner = list.owner.ptr();
  if (static_cast<size_t>(PySequence_Fast_GET_SIZE(owner)) != list.expected.size()) return false;
  for (size_t i = 0; i < list.expected.size(); ++i) {
    if (!accept(list.expected[i], PySequence_Fast_GET_ITEM(owner, static_cast<Py_ssize_t>(i)))) {
      return false;
    }
  }
  return true;
}

// In their order, which is that of a set that nothing touched.
bool Guards::holds_set(const Items& set) {
  if (static_cast<size_t>(PySet_GET_SIZE(set.owner.ptr())) != set.expected.size()) return false;
  if (set.expected.empty()) return true;
  size_t i = 0;
  for (const py::handle item : set.owner) {
    if (!is_same_value(set.expected[i++].ptr(), item.ptr())) return false;
  }
  return true;
}

// Those by which eager would call other operators or kernels. The stream is the caller's to choose.
bool Guards::Switches::hold() const {
  ThreadState now = ThreadState::capture(device);
  now.stream = expected.stream;
  now.inference = expected.inference;  // the same operators run under no_grad
  if (!expected.describe_change(now).empty()) return false;
  return c10::impl::TorchDispatchModeTLS::stack_len() == 0 &&
         !at::impl::torch_function_mode_enabled() && !is_inside_a_mode();
}

std::optional<size_t> Guards::find_other_change() {
  for (Items& list : lists_) {
    if (!holds_list(list)) return list.place;
  }
  for (const Items& set : sets_) {
    if (!holds_set(set)) return set.place;
  }
  for (Attribute& attribute : attributes_) {
    if (!accept(attribute.expected, attribute.read().ptr())) return attribute.place;
  }
  if (switches_.has_value() && !switches_->hold()) return switches_->place;
  return std::nullopt;
}

int64_t Guards::find_change() {
  if (const auto place = dicts_.find_change()) return static_cast<int64_t>(*place);
  for (Field& field : fields_) {
    if (!accept(field.expected, *field.address)) return static_cast<int64_t>(field.place);
  }
  if (const auto place = tensors_.find_change()) return static_cast<int64_t>(*place);
  if (const auto place = find_other_change()) return static_cast<int64_t>(*place);
  return -1;
}

py::object Guards::read(size_t place) const {
  if (auto found = dicts_.read(place)) return *found;
  for (const Field& field : fields_) {
    if (field.place == place && field.expected.ptr() != *field.address) {
      return hold_or_none(*field.address);
    }
  }
  for (const auto* const tables : {&lists_, &sets_}) {
    if (const Items* const items = find(*tables, place)) return py::tuple(items->owner);
  }
  if (const Attribute* const attribute = find(attributes_, place)) {
    return hold_or_none(attribute->read().ptr());
  }
  if (switches_.has_value() && switches_->place == place) {
    return py::str(switches_->expected.describe_change(ThreadState::capture(switches_->device)));
  }
  return tensors_.read(place);
}

int Guards::traverse(visitproc visit, void* arg) const {
  for (const Field& field : fields_) Py_VISIT(field.expected.ptr());
  for (const py::object& owner : field_owners_) Py_VISIT(owner.ptr());
  for (const auto* const tables : {&lists_, &sets_}) {
    for (const Items& items : *tables) {
      Py_VISIT(items.owner.ptr());
      for (const py::object& value : items.expected) Py_VISIT(value.ptr());
    }
  }
  for (const Attribute& attribute : attributes_) {
    Py_VISIT(attribute.owner.ptr());
    Py_VISIT(attribute.expected.ptr());
  }
  return dicts_.traverse(visit, arg);
}

// Moved out first: what it holds may ask for it while it goes.
void Guards::clear() {
  dicts_.clear();
  const auto tensors = std::exchange(tensors_, {});
  const auto fields = std::exchange(fields_, {});
  const auto owners = std::exchange(field_owners_, {});
  const auto lists = std::exchange(lists_, {});
  const auto sets = std::exchange(sets_, {});
  const auto attributes = std::exchange(attributes_, {});
}

}  // namespace ftax
