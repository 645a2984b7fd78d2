// What a captured call read of Python and of torch's switches while it was recorded, and whether it
// is still so. Every place is held by pointers, so that looking at thousands takes microseconds.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/dict_guards.h"
#include "bindings/torch/tensor_guards.h"
#include "tape/thread_state.h"

namespace py = pybind11;

namespace ftax {

class Guards {
 public:
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
  [[nodiscard]] py::object find_key(size_t place) const { return dicts_.find_key(place); }
  // What is at a place that changed, to be compared by is_same_value with what is there later.
  [[nodiscard]] py::object read(size_t place) const;
  [[nodiscard]] size_t size() const { return size_; }

  // For Python's collector of garbage.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  // A pointer in an object: its class, the content of a cell, the code of a function.
  struct Field {
    PyObject* const* address;
    py::object expected;
    size_t place;
  };
  struct Items {  // of a list or a set, in their order
    py::object owner;
    std::vector<py::object> expected;
    size_t place;
  };
  struct Attribute {
    py::object owner, name, expected;
    size_t place;

    [[nodiscard]] py::object read() const { return py::getattr(owner, name, py::object()); }
  };
  struct Switches {
    c10::Device device;
    ThreadState expected;
    size_t place;

    [[nodiscard]] bool hold() const;
  };

  void add_field(const py::object& owner, PyObject* const* address, size_t place);
  [[nodiscard]] static bool holds_list(Items& list);
  [[nodiscard]] static bool holds_set(const Items& set);
  [[nodiscard]] std::optional<size_t> find_other_change();

  size_t size_ = 0;
  DictGuards dicts_;
  TensorGuards tensors_;
  std::vector<Field> fields_;
  std::vector<py::object> field_owners_;
  std::vector<Items> lists_, sets_;
  std::vector<Attribute> attributes_;
  std::optional<Switches> switches_;
};

}  // namespace ftax
