#include "bindings/torch/watched_dicts.h"

#include <memory>
#include <unordered_map>

namespace ftax {

#if PY_VERSION_HEX >= 0x030C0000
namespace {

uint64_t clock_now = 0;

std::unordered_map<PyObject*, std::unique_ptr<WatchedDict>>& list_watched() {
  static auto* const watched = new std::unordered_map<PyObject*, std::unique_ptr<WatchedDict>>();
  return *watched;  // never destroyed: dictionaries change while Python ends
}

int note_change(PyDict_WatchEvent, PyObject* dict, PyObject*, PyObject*) {
  const auto found = list_watched().find(dict);
  if (found == list_watched().end()) return 0;
  ++found->second->changes;
  if (!found->second->is_quiet) ++clock_now;
  return 0;
}

// Python 3.13.0 does not tell of attributes that an object is given (python/cpython#125608).
bool tells_of_attributes() { return Py_Version < 0x030D00F0 || Py_Version > 0x030D00FF; }

// -1: an interpreter has few watchers, and others may have taken them.
int find_watcher() {
  static const int watcher = [] {
    if (!tells_of_attributes()) return -1;
    const int number = PyDict_AddWatcher(note_change);
    if (number < 0) PyErr_Clear();
    return number;
  }();
  return watcher;
}

}  // namespace

WatchedDict* watch_dict(PyObject* dict) {
  const int watcher = find_watcher();
  if (watcher < 0) return nullptr;
  auto& entry = list_watched()[dict];
  if (entry == nullptr) {
    if (PyDict_Watch(watcher, dict) != 0) {
      PyErr_Clear();
      list_watched().erase(dict);
      return nullptr;
    }
    entry = std::make_unique<WatchedDict>();
  }
  ++entry->users;
  return entry.get();
}

void unwatch_dict(PyObject* dict) noexcept {
  const auto found = list_watched().find(dict);
  if (found == list_watched().end() || --found->second->users > 0) return;
  if (PyDict_Unwatch(find_watcher(), dict) != 0) PyErr_Clear();
  list_watched().erase(found);
}

void make_quiet(WatchedDict& dict) {
  dict.is_quiet = true;
  ++clock_now;
}

uint64_t read_dict_clock() { return clock_now; }
#else
WatchedDict* watch_dict(PyObject*) { return nullptr; }
void unwatch_dict(PyObject*) noexcept {}
void make_quiet(WatchedDict&) {}
uint64_t read_dict_clock() { return 0; }
#endif

}  // namespace ftax
