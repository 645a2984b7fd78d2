// A place is compared by identity first. Only a number or string that was replaced by an equal one
// is looked at closer, and is from then on the one that is expected.
//
// Note [Versions of dictionaries]
// A model is thousands of dictionaries: the attributes of each module, its weights, its hooks.
// Before Python 3.12 each has a number that no other state of any dictionary has had; one
// comparison then stands for all items. From 3.12 on they tell when they change, and where none
// did, one comparison stands for all dictionaries (watched_dicts.h). Where one did, its items are
// looked at.
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
// are there and mean the same, here and in watched_dicts.cpp, run tests/runtimes/test_capture*.py,
// and widen this and requires-python in pyproject.toml.
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000 || defined(Py_GIL_DISABLED)
#error "ftax is for Python 3.11 to 3.13, with the GIL; see csrc/bindings/torch/guards.cpp"
#endif

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

#if PY_VERSION_HEX < 0x030C0000
uint64_t read_version(PyObject* dict, const WatchedDict*) {
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
constexpr bool kHasVersions = true;
#else
uint64_t read_version(PyObject*, const WatchedDict* watched) {
  return watched == nullptr ? 0 : watched->changes;
}
constexpr bool kHasVersions = false;
#endif

constexpr int kManyAlarms = 8;

PyObject* read_cell(PyObject* cell) { return PyCell_GET(cell); }

// Of torch.func or of autograd, which does to each call what no replay does.
bool is_inside_a_mode() {
  return c10::impl::tls_is_dispatch_key_included(
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         torch::autograd::AnomalyMode::is_enabled() ||
         !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
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
  if (kind == Kind::kItems || kind == Kind::kDict) {
    WatchedDict* const watched = watch_dict(owner.ptr());
    if (watched == nullptr || watched->is_quiet) restless_.push_back(dicts_.size());
    dicts_.push_back({owner.ptr(), watched, read_version(owner.ptr(), watched), places_.size()});
    clock_.reset();
  }
  places_.push_back({kind, owner, std::move(keys), std::move(values)});
}

void Guards::add_word(const void* address) {
  const auto* word = static_cast<const void* const*>(address);
  words_.push_back({word, *word, places_.size() - 1});
}

Guards::~Guards() { clear(); }

int Guards::traverse(visitproc visit, void* arg) const {
  for (const Place& place : places_) {
    Py_VISIT(place.owner.ptr());
    for (const py::object& key : place.keys) Py_VISIT(key.ptr());
    for (const py::object& value : place.values) Py_VISIT(value.ptr());
  }
  return 0;
}

// Moved out first: what it holds may ask for it while it goes.
void Guards::clear() {
  for (const Dict& item : std::exchange(dicts_, {})) {
    if (item.watched != nullptr) unwatch_dict(item.dict);
  }
  restless_.clear();
  words_.clear();
  others_.clear();
  const auto tensors = std::exchange(tensors_, {});
  const auto places = std::exchange(places_, {});
}

// The dictionary behind the proxy that Python shows of a class.
void Guards::add_class_items(const py::type& type, const py::list& keys) {
  PyObject* const dict = reinterpret_cast<PyTypeObject*>(type.ptr())->tp_dict;
  add_items(py::reinterpret_borrow<py::dict>(dict), keys);
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
  values.reserve(py::len(list_or_tuple));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list_or_tuple.ptr()); ++i) {
    values.push_back(hold(PySequence_Fast_GET_ITEM(list_or_tuple.ptr(), i)));
  }
  add(Kind::kSequence, list_or_tuple, {}, std::move(values));
  // What is in a tuple stays in it.
  if (!PyTuple_CheckExact(list_or_tuple.ptr())) others_.push_back(places_.size() - 1);
}

void Guards::add_set(const py::object& set) {
  std::vector<py::object> values;
  for (const py::handle item : set) values.push_back(hold(item.ptr()));
  const bool is_empty = values.empty();
  add(Kind::kSet, set, {}, std::move(values));
  if (is_empty) {
    add_word(&reinterpret_cast<PySetObject*>(set.ptr())->used);
  } else {
    others_.push_back(places_.size() - 1);
  }
}

void Guards::add_cell(const py::object& cell) {
  add(Kind::kCell, cell, {}, {hold(read_cell(cell.ptr()))});
  add_word(&reinterpret_cast<PyCellObject*>(cell.ptr())->ob_ref);
}

void Guards::add_attribute(const py::object& object, const py::str& name) {
  add(Kind::kAttribute, object, {name}, {py::getattr(object, name, py::object())});
  others_.push_back(places_.size() - 1);
}

void Guards::add_class(const py::object& object) {
  add(Kind::kClass, object, {}, {py::type::of(object)});
  add_word(&object.ptr()->ob_type);
}

bool Guards::add_dict_of(const py::object& object) {
  PyObject* const* const dict = _PyObject_GetDictPtr(object.ptr());
  if (dict == nullptr || *dict == nullptr) return false;
  add(Kind::kDictOf, object, {}, {hold(*dict)});
  add_word(dict);
  return true;
}

void Guards::add_function(const py::object& function) {
  PyObject* const it = function.ptr();
  add(Kind::kFunction, function, {},
      {hold(PyFunction_GET_CODE(it)), hold(PyFunction_GET_DEFAULTS(it)),
       hold(PyFunction_GET_KW_DEFAULTS(it))});
  const auto* const fields = reinterpret_cast<PyFunctionObject*>(it);
  add_word(&fields->func_code);
  add_word(&fields->func_defaults);
  add_word(&fields->func_kwdefaults);
}

void Guards::add_tensor(const at::Tensor& tensor, bool gradient, bool hooks) {
  tensors_.add(tensor, places_.size(), gradient, hooks);
  places_.push_back({Kind::kTensor, {}, {}, {}});
}

void Guards::add_switches(const std::string& device) {
  device_ = c10::Device(device);
  switches_ = ThreadState::capture(*device_);
  others_.push_back(places_.size());
  places_.push_back({Kind::kSwitches, {}, {}, {}});
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

// In their order, which is that of a set that nobody touched.
bool Guards::holds_set(const Place& place) {
  if (static_cast<size_t>(PySet_GET_SIZE(place.owner.ptr())) != place.values.size()) return false;
  if (place.values.empty()) return true;
  size_t i = 0;
  for (const py::handle item : place.owner) {
    if (!is_same_value(place.values[i++].ptr(), item.ptr())) return false;
  }
  return true;
}

bool Guards::holds_function(const Place& place) {
  PyObject* const it = place.owner.ptr();
  return place.values[0].ptr() == PyFunction_GET_CODE(it) &&
         place.values[1].ptr() == PyFunction_GET_DEFAULTS(it) &&
         place.values[2].ptr() == PyFunction_GET_KW_DEFAULTS(it);
}

// Those by which eager would call other operators or kernels. The stream is the caller's to choose.
bool Guards::hold_switches() const {
  const ThreadState& expected = switches_.value();
  ThreadState now = ThreadState::capture(device_.value());
  now.stream = expected.stream;
  now.inference = expected.inference;  // the same operators run under no_grad
  if (!expected.describe_change(now).empty()) return false;
  return c10::impl::TorchDispatchModeTLS::stack_len() == 0 &&
         !at::impl::torch_function_mode_enabled() && !is_inside_a_mode();
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
    case Kind::kClass:
      return place.values[0].is(py::type::handle_of(place.owner));
    case Kind::kDictOf:
      return place.values[0].ptr() == *_PyObject_GetDictPtr(place.owner.ptr());
    case Kind::kFunction:
      return holds_function(place);
    case Kind::kTensor:
      return true;  // looked at in tensors_
    case Kind::kSwitches:
      return hold_switches();
  }
  return false;
}

bool Guards::has_changed(Dict& item) {
  const bool has_version = kHasVersions || item.watched != nullptr;
  const uint64_t version = read_version(item.dict, item.watched);
  if (has_version && version == item.version) return false;
  if (!holds(places_[item.place])) return true;
  item.version = version;
  if (item.watched != nullptr && !item.watched->is_quiet && ++item.false_alarms >= kManyAlarms) {
    make_quiet(*item.watched);
  }
  return false;
}

int64_t Guards::find_changed_dict() {
  for (const size_t index : restless_) {
    if (has_changed(dicts_[index])) return static_cast<int64_t>(dicts_[index].place);
  }
  const uint64_t now = read_dict_clock();
  if (clock_ == now) return -1;
  restless_.clear();
  for (size_t i = 0; i < dicts_.size(); ++i) {
    Dict& item = dicts_[i];
    if (has_changed(item)) return static_cast<int64_t>(item.place);
    if (item.watched == nullptr || item.watched->is_quiet) restless_.push_back(i);
  }
  clock_ = now;
  return -1;
}

int64_t Guards::find_change() {
  if (const int64_t place = find_changed_dict(); place >= 0) return place;
  for (Word& word : words_) {
    const void* const now = *word.address;
    if (now == word.expected) continue;
    if (!holds(places_[word.place])) return static_cast<int64_t>(word.place);
    word.expected = now;
  }
  if (const auto place = tensors_.find_change()) return static_cast<int64_t>(*place);
  for (const size_t place : others_) {
    if (!holds(places_[place])) return static_cast<int64_t>(place);
  }
  return -1;
}

py::object Guards::find_key(size_t index) const {
  const Place& place = places_.at(index);
  if (place.kind != Kind::kItems && place.kind != Kind::kDict) return py::none();
  for (size_t i = 0; i < place.keys.size(); ++i) {
    PyObject* const now = find_item(place.owner.ptr(), place.keys[i].ptr());
    if (!is_same_value(place.values[i].ptr(), now)) return place.keys[i];
  }
  return py::none();
}

py::object Guards::read(size_t index) const {
  const Place& place = places_.at(index);
  PyObject* const owner = place.owner.ptr();
  PyObject* found = nullptr;
  switch (place.kind) {
    case Kind::kItems:
    case Kind::kDict:
      found = find_item(owner, find_key(index).ptr());
      break;
    case Kind::kSequence:
    case Kind::kSet:
      return py::tuple(place.owner);
    case Kind::kCell:
      found = read_cell(owner);
      break;
    case Kind::kAttribute:
      return py::getattr(place.owner, place.keys[0], py::none());
    case Kind::kClass:
      return py::type::of(place.owner);
    case Kind::kDictOf:
      found = *_PyObject_GetDictPtr(owner);
      break;
    case Kind::kFunction:
      found = PyFunction_GET_CODE(owner);
      break;
    case Kind::kSwitches:
      return py::str(switches_.value().describe_change(ThreadState::capture(device_.value())));
    case Kind::kTensor:
      return tensors_.read(index);
  }
  return found == nullptr ? py::object(py::none()) : hold(found);
}

}  // namespace ftax
