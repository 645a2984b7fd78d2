// A model is thousands of dictionaries: the attributes of each module, its weights, its hooks.
// Before Python 3.12 each has a number that no other state of any dictionary has had; one
// comparison then stands for all items. From 3.12 on they tell when they change, and where none
// did, one comparison stands for all dictionaries (watched_dicts.h). Where one did, its items are
// looked at.
#include "bindings/torch/dict_guards.h"

#include <utility>

#include "bindings/torch/python_values.h"

namespace ftax {
namespace {

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

// Borrowed; nullptr without an error where the key is absent.
PyObject* find_item(PyObject* dict, PyObject* key) {
  PyObject* const value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

}  // namespace

void DictGuards::add(Guarded guarded) {
  PyObject* const dict = guarded.dict.ptr();
  WatchedDict* const watched = watch_dict(dict);
  versions_.push_back({dict, watched, read_version(dict, watched)});
  if (versions_.back().is_restless()) restless_.push_back(dicts_.size());
  clock_.reset();
  dicts_.push_back(std::move(guarded));
}

void DictGuards::add_items(const py::dict& dict, const py::list& keys, size_t place) {
  Guarded guarded{.dict = dict, .is_whole = false, .place = place};
  for (const py::handle key : keys) {
    guarded.keys.push_back(hold(key.ptr()));
    guarded.values.push_back(hold(find_item(dict.ptr(), key.ptr())));
  }
  add(std::move(guarded));
}

void DictGuards::add_whole(const py::dict& dict, size_t place) {
  Guarded guarded{.dict = dict, .is_whole = true, .place = place};
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(dict.ptr(), &position, &key, &value);) {
    guarded.keys.push_back(hold(key));
    guarded.values.push_back(hold(value));
  }
  add(std::move(guarded));
}

bool DictGuards::holds(Guarded& guarded) {
  PyObject* const dict = guarded.dict.ptr();
  std::vector<py::object>&keys = guarded.keys, &values = guarded.values;
  if (!guarded.is_whole) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!accept(values[i], find_item(dict, keys[i].ptr()))) return false;
    }
    return true;
  }
  if (static_cast<size_t>(PyDict_GET_SIZE(dict)) != keys.size()) return false;
  PyObject *key = nullptr, *value = nullptr;
  size_t i = 0;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &key, &value); ++i) {
    if (!accept(keys[i], key) || !accept(values[i], value)) return false;
  }
  return true;
}

bool DictGuards::has_changed(size_t index) {
  Version& known = versions_[index];
  const uint64_t now = read_version(known.dict, known.watched);
  if ((kHasVersions || known.watched != nullptr) && now == known.number) return false;
  if (!holds(dicts_[index])) return true;
  known.number = now;
  if (!known.is_restless() && ++known.false_alarms >= kManyAlarms) make_quiet(*known.watched);
  return false;
}

std::optional<size_t> DictGuards::find_change() {
  for (const size_t index : restless_) {
    if (has_changed(index)) return dicts_[index].place;
  }
  const uint64_t now = read_dict_clock();
  if (clock_ == now) return std::nullopt;
  restless_.clear();
  for (size_t index = 0; index < versions_.size(); ++index) {
    if (has_changed(index)) return dicts_[index].place;
    if (versions_[index].is_restless()) restless_.push_back(index);
  }
  clock_ = now;
  return std::nullopt;
}

const DictGuards::Guarded* DictGuards::find(size_t place) const {
  for (const Guarded& guarded : dicts_) {
    if (guarded.place == place) return &guarded;
  }
  return nullptr;
}

py::object DictGuards::find_key(size_t place) const {
  const Guarded* const guarded = find(place);
  if (guarded == nullptr) return py::none();
  for (size_t i = 0; i < guarded->keys.size(); ++i) {
    PyObject* const now = find_item(guarded->dict.ptr(), guarded->keys[i].ptr());
    if (!is_same_value(guarded->values[i].ptr(), now)) return guarded->keys[i];
  }
  return py::none();
}

std::optional<py::object> DictGuards::read(size_t place) const {
  const Guarded* const guarded = find(place);
  if (guarded == nullptr) return std::nullopt;
  return hold_or_none(find_item(guarded->dict.ptr(), find_key(place).ptr()));
}

int DictGuards::traverse(visitproc visit, void* arg) const {
  for (const Guarded& guarded : dicts_) {
    Py_VISIT(guarded.dict.ptr());
    for (const py::object& key : guarded.keys) Py_VISIT(key.ptr());
    for (const py::object& value : guarded.values) Py_VISIT(value.ptr());
  }
  return 0;
}

// Moved out first: what it holds may ask for it while it goes.
void DictGuards::clear() {
  const auto dicts = std::exchange(dicts_, {});
  restless_.clear();
  for (const Version& known : std::exchange(versions_, {})) {
    if (known.watched != nullptr) unwatch_dict(known.dict);
  }
}

}  // namespace ftax
