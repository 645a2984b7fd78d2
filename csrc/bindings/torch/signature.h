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
  // Throws InvalidArgumentError for a tensor of a kind that cannot be told by its facts alone (a
  // subclass, sparse, nested), and for containers that hold themselves.
  Signature(const py::tuple& args, const py::dict& kwargs);

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

 private:
  // An object: one with named items alone, as a named tuple and a dataclass are.
  enum class Kind { kTensor, kTuple, kList, kDict, kNamedTuple, kDataclass, kValue };

  struct TensorFacts {
    InputFacts layout;
    PyTypeObject* type;  // Tensor or Parameter, which code may ask for
    bool requires_grad;
    size_t memory;  // the first place among the tensors that has the same memory

    [[nodiscard]] bool fit(PyObject* value) const;
  };

  struct Node {
    Kind kind = Kind::kValue;
    py::object value;  // kValue; of a named tuple and a dataclass the class
    std::vector<py::object> keys;
    std::vector<Node> items;
    size_t place = 0;  // kTensor: among the tensors
  };

  using Tensors = std::vector<PyObject*>;

  [[nodiscard]] Node read(PyObject* value, Tensors& tensors);
  [[nodiscard]] Node read_container(PyObject* value, Tensors& tensors);
  void read_items(PyObject* value, Node& node, Tensors& tensors);
  [[nodiscard]] bool match_items(const Node& node, PyObject* value, Tensors& tensors) const;
  [[nodiscard]] Node read_tensor(PyObject* value, Tensors& tensors);
  [[nodiscard]] bool match(const Node& node, PyObject* value, Tensors& tensors) const;
  [[nodiscard]] bool match_tensor(const Node& node, PyObject* value, Tensors& tensors) const;
  [[nodiscard]] py::object fill(const Node& node, const py::list& tensors) const;
  void describe(const Node& node, std::vector<std::string>& words) const;
  static void list_objects(const Node& node, py::list& found);

  Node args_, kwargs_;
  std::vector<TensorFacts> facts_;
  int depth_ = 0;  // while it is made
};

}  // namespace ftax
