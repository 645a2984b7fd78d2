// What a captured call found in dictionaries: attributes of modules, globals, weights, hooks.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/torch/watched_dicts.h"

namespace py = pybind11;

namespace ftax {

class DictGuards {
 public:
  DictGuards() = default;
  DictGuards(const DictGuards&) = delete;
  DictGuards& operator=(const DictGuards&) = delete;
  ~DictGuards() { clear(); }

  // A dictionary as it is now, under a number of the caller's: the values of these keys, absent
  // ones too, or all of it in its order.
  void add_items(const py::dict& dict, const py::list& keys, size_t place);
  void add_whole(const py::dict& dict, size_t place);

  // The place of the first that is not as it was; nullopt: none. Expects the GIL.
  [[nodiscard]] std::optional<size_t> find_change();
  // The first key whose value changed; None where there is none, or no such place here.
  [[nodiscard]] py::object find_key(size_t place) const;
  // What that key has now; nullopt where there is no such place here.
  [[nodiscard]] std::optional<py::object> read(size_t place) const;

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Guarded {
    py::dict dict;
    std::vector<py::object> keys;
    std::vector<py::object> values;  // null: was absent
    bool is_whole;
    size_t place;
  };
  // Looked at in each call, and so apart: they lie close together.
  struct Version {
    PyObject* dict;
    WatchedDict* watched;  // nullptr: it does not tell
    uint64_t number;
    int false_alarms = 0;  // changes that changed nothing that was read

    [[nodiscard]] bool is_restless() const { return watched == nullptr || watched->is_quiet; }
  };

  void add(Guarded guarded);
  [[nodiscard]] static bool holds(Guarded& guarded);
  [[nodiscard]] bool has_changed(size_t index);
  [[nodiscard]] const Guarded* find(size_t place) const;

  std::vector<Guarded> dicts_;
  std::vector<Version> versions_;  // of each of them
  std::vector<size_t> restless_;   // those that are looked at each time
  std::optional<uint64_t> clock_;  // when no other had changed
};

}  // namespace ftax
