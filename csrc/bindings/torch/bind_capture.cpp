// What a captured call is checked against: its arguments, and what it read of Python.
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "bindings/torch/guards.h"
#include "bindings/torch/python_values.h"
#include "bindings/torch/signature.h"

namespace ftax {
namespace {

// The memory from which a graph reads what it is given.
class OwnInputs {
 public:
  explicit OwnInputs(std::vector<at::Tensor> tensors) : own_(std::move(tensors)) {}

  // Copies what is not there already; which places were copied.
  [[nodiscard]] std::vector<size_t> take(const std::vector<at::Tensor>& given) {
    const at::NoGradGuard no_grad;
    std::vector<size_t> copied;
    for (size_t i = 0; i < own_.size(); ++i) {
      if (given.at(i).const_data_ptr() == own_[i].const_data_ptr()) continue;
      own_[i].copy_(given[i]);
      copied.push_back(i);
    }
    return copied;
  }

  // Copies these back, for a graph that writes into its inputs.
  void give_back(const std::vector<at::Tensor>& given, const std::vector<size_t>& places) const {
    const at::NoGradGuard no_grad;
    for (const size_t place : places) given.at(place).copy_(own_.at(place));
  }

 private:
  std::vector<at::Tensor> own_;
};

}  // namespace

void bind_capture(py::module_& m) {
  py::class_<Signature>(m, "Signature")
      .def(py::init<const py::tuple&, const py::dict&>(), py::arg("args"), py::arg("kwargs"))
      .def("match",
           py::overload_cast<const py::tuple&, const py::dict&>(&Signature::match, py::const_),
           py::arg("args"), py::arg("kwargs"), "Their tensors, each once; None: other arguments.")
      .def("fill", py::overload_cast<const py::list&>(&Signature::fill, py::const_),
           py::arg("tensors"), "Such arguments with these tensors: (args, kwargs).")
      .def("describe", py::overload_cast<>(&Signature::describe, py::const_))
      .def_property_readonly("objects", py::overload_cast<>(&Signature::list_objects, py::const_));
  py::class_<Guards>(m, "Guards")
      .def(py::init<>())
      .def("add_items", &Guards::add_items, py::arg("dict"), py::arg("keys"))
      .def("add_dict", &Guards::add_dict, py::arg("dict"))
      .def("add_class_items", &Guards::add_class_items, py::arg("type"), py::arg("keys"))
      .def("add_sequence", &Guards::add_sequence, py::arg("list_or_tuple"))
      .def("add_set", &Guards::add_set, py::arg("set"))
      .def("add_cell", &Guards::add_cell, py::arg("cell"))
      .def("add_attribute", &Guards::add_attribute, py::arg("object"), py::arg("name"))
      .def("add_class", &Guards::add_class, py::arg("object"))
      .def("add_function", &Guards::add_function, py::arg("function"))
      .def("add_tensor", &Guards::add_tensor, py::arg("tensor"), py::arg("gradient") = false)
      .def("add_switches", &Guards::add_switches, py::arg("device"))
      .def("find_change", &Guards::find_change,
           "A place that is not as it was, by the order of adding; -1: none.")
      .def("find_key", &Guards::find_key, py::arg("place"),
           "Of a dictionary that changed: the key whose value did; None: another place.")
      .def("__len__", &Guards::size);
  py::class_<OwnInputs>(m, "OwnInputs")
      .def(py::init<std::vector<at::Tensor>>(), py::arg("tensors"))
      .def("take", &OwnInputs::take, py::arg("given"), py::call_guard<py::gil_scoped_release>(),
           "Copies what is not there already; the places that were copied.")
      .def("give_back", &OwnInputs::give_back, py::arg("given"), py::arg("places"),
           py::call_guard<py::gil_scoped_release>());
  m.def(
      "is_plain_value", [](const py::object& value) { return is_plain_value(value.ptr()); },
      py::arg("value"), "Whether it is compared by value, so that its identity says nothing.");
}

}  // namespace ftax
