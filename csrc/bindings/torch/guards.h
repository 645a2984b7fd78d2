// What a captured call read of Python and of torch's switches while it was recorded, and whether it
// is still so. Every place is held by pointers, so that looking at thousands takes microseconds.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/torch/tensor_guards.h"
#include "bindings/torch/watched_dicts.h"
#include "tape/thread_state.h"

namespace py = pybind11;

namespace ftax {

class Guards {
 public:
  Guards() = default;
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;
  ~Guards();

  // Each of these adds a place, as it is now.
  void add_items(const py::dict& dict, const py::list& keys);  // of these keys, absent ones too
  void add_dict(const py::dict& dict);                         // all of it
  void add_class_items(const py::type& type, const py::list& keys);
  void add_sequence(const py::object& list_or_tuple);
  void add_set(const py::object& set);
  void add_cell(const py::object& cell);
  void add_attribute(const py::object& object, const py::str& name);
  void add_class(const py::object& object);  // which it is of
  // Which dictionary has its attributes; false, and no place, where it has none to replace.
  bool add_dict_of(const py::object& object);
  void add_function(const py::object& function);  // its code and its defaults
  // See TensorGuards.
  void add_tensor(const at::Tensor& tensor, bool gradient, bool hooks);
  void add_switches(const std::string& device);

  // A place that is not as it was, by the order in which they were added; -1: none. Expects the
  // GIL.
  [[nodiscard]] int64_t find_change();
  // In a dictionary that changed, the first key whose value did; None where it is another place.
  [[nodiscard]] py::object find_key(size_t place) const;
  // What is at a place that changed, to be compared by is_same_value with what is there later.
  [[nodiscard]] py::object read(size_t place) const;
  [[nodiscard]] size_t size() const { return places_.size(); }

  // For Python's collector of garbage.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  enum class Kind {
    kItems,
    kDict,
    kSequence,
    kSet,
    kCell,
    kAttribute,
    kClass,
    kDictOf,
    kFunction,
    kTensor,
    kSwitches
  };

  struct Place {
    Kind kind;
    py::object owner;                // the container
    std::vector<py::object> keys;    // kItems, kDict; kAttribute: the name
    std::vector<py::object> values;  // null: was absent
  };

  void add(Kind kind, const py::object& owner, std::vector<py::object> keys,
           std::vector<py::object> values);
  [[nodiscard]] bool holds(Place& place) const;
  [[nodiscard]] static bool hold_items(Place& place);
  [[nodiscard]] static bool holds_dict(Place& place);
  [[nodiscard]] static bool holds_sequence(Place& place);
  [[nodiscard]] static bool holds_set(const Place& place);
  [[nodiscard]] static bool holds_function(const Place& place);
  [[nodiscard]] bool hold_switches() const;

  // See Note [Versions of dictionaries] in guards.cpp.
  struct Dict {
    PyObject* dict;
    WatchedDict* watched;  // nullptr: it does not tell
    uint64_t version;
    size_t place;
    int false_alarms = 0;  // changes that changed nothing that was read
  };

  // Most other places are a word of memory or three: the class of an object, the code of a
  // function.
  struct Word {
    const void* const* address;
    const void* expected;
    size_t place;
  };

  void add_word(const void* address);  // of the place that was added last
  [[nodiscard]] bool has_changed(Dict& item);
  [[nodiscard]] int64_t find_changed_dict();

  std::vector<Place> places_;
  std::vector<Dict> dicts_;        // places that are dictionaries
  std::vector<size_t> restless_;   // of these, those that are looked at each time
  std::optional<uint64_t> clock_;  // when no other had changed
  std::vector<Word> words_;
  std::vector<size_t> others_;  // all others
  TensorGuards tensors_;
  std::optional<ThreadState> switches_;
  std::optional<c10::Device> device_;
};

}  // namespace ftax
