// The arguments that a captured call takes: the nesting of their containers, their plain values,
// and the facts of their tensors by which operators were chosen.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "tape/program.h"

namespace py = pybind11;

namespace ftax {

class Signature {
 public:
  // `is_data(object)`: whether it is walked into, by its attributes and what it contains; others
  // have to be the same object. Throws InvalidArgumentError for a tensor of a kind that cannot be
  // told by its facts alone (a subclass, sparse, nested), and for containers that hold themselves.
  Signature(const py::tuple& args, const py::dict& kwargs, py::object is_data);

  // The tensors of other arguments, each once, in the order of the signature; None where they do
  // not fit it.
  [[nodiscard]] py::object match(const py::tuple& args, const py::dict& kwargs) const;

  // Arguments like those that it was made of, with these tensors in them.
  [[nodiscard]] py::tuple fill(const py::list& tensors) const;

  // "float32 (8, 128) on cpu, True".
  [[nodiscard]] std::string describe() const;

  // Arguments that are neither containers nor tensors nor plain values: the same object or no
  // match.
  [[nodiscard]] py::list list_objects() const;

  // For Python's collector of garbage.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  enum class Kind {
    kTensor,
    kTuple,
    kList,
    kDict,
    kObject,    // attributes, slots, and what it contains where it derives from a container
    kArray,     // of numpy: by its values
    kOfType,    // a part of an object that is neither: by its type
    kBack,      // an object that this is a part of
    kWeakBack,  // the same, as a weak reference
    kValue
  };

  struct TensorFacts {
    InputFacts layout;
    PyTypeObject* type;  // Tensor or Parameter, which code may ask for
    bool requires_grad;
    size_t memory;  // the first place among the tensors that has the same memory

    [[nodiscard]] bool fit(PyObject* value) const;
  };

  struct Node {
    Kind kind = Kind::kValue;
    py::object value;  // kValue, kOfType; kArray: a copy; kObject: the class
    // kDict; kObject: attributes, then slots, and last, without a key, what it contains.
    std::vector<py::object> keys;
    std::vector<Node> items;
    size_t attributes = 0;  // kObject: how many of the keys are no slots
    size_t place = 0;       // kTensor: among the tensors; kBack: among the objects around it
  };

  // What a walk has met: tensors, each once, and the objects around the place where it is.
  struct Walk {
    std::vector<PyObject*> tensors, around;
  };

  [[nodiscard]] Node read(PyObject* value, Walk& walk);
  [[nodiscard]] Node read_other(PyObject* value, Walk& walk);
  [[nodiscard]] Node read_object(PyObject* value, Walk& walk);
  [[nodiscard]] Node read_contents(PyObject* value, Walk& walk);
  void read_items(PyObject* dict, Node& node, Walk& walk);
  [[nodiscard]] Node read_tensor(PyObject* value, Walk& walk);

  [[nodiscard]] bool match(const Node& node, PyObject* value, Walk& walk) const;
  [[nodiscard]] bool match_items(const Node& node, PyObject* dict, size_t count, Walk& walk) const;
  [[nodiscard]] bool match_sequence(const Node& node, PyObject* value, Walk& walk) const;
  [[nodiscard]] bool match_object(const Node& node, PyObject* value, Walk& walk) const;
  [[nodiscard]] bool match_tensor(const Node& node, PyObject* value, Walk& walk) const;

  [[nodiscard]] py::object fill(const Node& node, const py::list& tensors,
                                std::vector<py::object>& around) const;
  [[nodiscard]] py::object fill_object(const Node& node, const py::list& tensors,
                                       std::vector<py::object>& around) const;
  void describe(const Node& node, std::vector<std::string>& words) const;
  static void list_objects(const Node& node, py::list& found);

  py::object is_data_;
  Node args_, kwargs_;
  std::vector<TensorFacts> facts_;
  int depth_ = 0;  // while it is made
};

}  // namespace ftax
