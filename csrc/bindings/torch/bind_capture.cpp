// What a captured call is checked against: its arguments, and what it read of Python.
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "bindings/collectable.h"
#include "bindings/torch/graph_arguments.h"
#include "bindings/torch/guards.h"
#include "bindings/torch/python_values.h"
#include "bindings/torch/signature.h"
#include "tape/collectives.h"
#include "tape/own_inputs.h"

namespace ftax {
namespace {

using Given = std::vector<std::pair<std::string, std::vector<at::Tensor>>>;

Given list_given(const std::vector<Collective>& collectives) {
  Given given;
  for (const Collective& item : collectives) given.emplace_back(item.what, item.inputs);
  return given;
}

}  // namespace

void bind_capture(py::module_& m) {
  py::class_<Signature>(m, "Signature", make_collectable<Signature>())
      .def(py::init<const py::tuple&, const py::dict&, py::object>(), py::arg("args"),
           py::arg("kwargs"), py::arg("is_data") = py::none())
      .def("match",
           py::overload_cast<const py::tuple&, const py::dict&>(&Signature::match, py::const_),
           py::arg("args"), py::arg("kwargs"), "Their tensors, each once; None: other arguments.")
      .def("fill", py::overload_cast<const py::list&>(&Signature::fill, py::const_),
           py::arg("tensors"), "Such arguments with these tensors: (args, kwargs).")
      .def("describe", py::overload_cast<>(&Signature::describe, py::const_))
      .def_property_readonly("objects", py::overload_cast<>(&Signature::list_objects, py::const_));
  py::class_<Guards>(m, "Guards", make_collectable<Guards>())
      .def(py::init<>())
      .def("add_items", &Guards::add_items, py::arg("dict"), py::arg("keys"))
      .def("add_dict", &Guards::add_dict, py::arg("dict"))
      .def("add_class_items", &Guards::add_class_items, py::arg("type"), py::arg("keys"))
      .def("add_sequence", &Guards::add_sequence, py::arg("list_or_tuple"))
      .def("add_set", &Guards::add_set, py::arg("set"))
      .def("add_cell", &Guards::add_cell, py::arg("cell"))
      .def("add_attribute", &Guards::add_attribute, py::arg("object"), py::arg("name"))
      .def("add_class", &Guards::add_class, py::arg("object"))
      .def("add_dict_of", &Guards::add_dict_of, py::arg("object"),
           "Whether it has one that could be replaced.")
      .def("add_function", &Guards::add_function, py::arg("function"))
      .def("add_tensor", &Guards::add_tensor, py::arg("tensor"), py::arg("gradient") = false,
           py::arg("hooks") = false)
      .def("add_switches", &Guards::add_switches, py::arg("device"))
      .def("find_change", &Guards::find_change,
           "A place that is not as it was, by the order of adding; -1: none.")
      .def("find_key", &Guards::find_key, py::arg("place"),
           "Of a dictionary that changed: the key whose value did; None: another place.")
      .def("read", &Guards::read, py::arg("place"), "What is now at a place that changed.")
      .def("__len__", &Guards::size);
  py::class_<OwnInputs>(m, "OwnInputs")
      .def(py::init<std::vector<at::Tensor>>(), py::arg("tensors"))
      .def("take", &OwnInputs::take, py::arg("given"), py::call_guard<py::gil_scoped_release>(),
           "Copies what is not there already; the places that were copied.")
      .def("give_back", &OwnInputs::give_back, py::arg("given"), py::arg("places"),
           py::call_guard<py::gil_scoped_release>());
  m.def("copy_each", &copy_each, py::arg("tensors"), py::call_guard<py::gil_scoped_release>(),
        "A copy of each, in separate memory.");
  py::enum_<Collectives::Answer>(m, "Answer")
      .value("alone", Collectives::Answer::kAlone)
      .value("logged", Collectives::Answer::kLogged)
      .value("timed", Collectives::Answer::kTimed)
      .value("aligned", Collectives::Answer::kAligned)
      .value("kept", Collectives::Answer::kKept);
  py::class_<Collectives>(m, "Collectives")
      .def(py::init<const std::vector<std::string>&>(), py::arg("groups"))
      .def("open", &Collectives::open, py::arg("answer"),
           "From now on, in this thread: see Note [Collectives without other ranks].")
      .def("close", &Collectives::close)
      .def("take_time", &Collectives::take_time,
           "How long those of `timed` and `aligned` took since the last call, ns, and how many.")
      .def_property_readonly(
          "kept", [](const Collectives& c) { return list_given(c.kept()); },
          "(which, tensors that it was given) of each.")
      .def_property_readonly("repeated",
                             [](const Collectives& c) { return list_given(c.repeated()); })
      .def_property_readonly("refusal", &Collectives::refusal);
  py::class_<GraphArguments>(m, "GraphArguments", make_collectable<GraphArguments>())
      .def(py::init<py::tuple, std::vector<size_t>>(), py::arg("args"), py::arg("inputs"))
      .def("match", &GraphArguments::match, py::arg("args"),
           "The inputs; None where a weight, a size or a plain value is another.");
  m.def("find_functions", &find_functions, py::arg("objects"), py::arg("codes"),
        "Those of the objects that are functions with one of these codes.");
  m.def(
      "count_holders", [](const at::Tensor& tensor) { return tensor.storage().use_count(); },
      py::arg("tensor"), "How many tensors, views and detached ones among them, have its memory.");
  m.def(
      "is_plain_value", [](const py::object& value) { return is_plain_value(value.ptr()); },
      py::arg("value"), "Whether it is compared by value, so that its identity says nothing.");
  m.def(
      "is_same_value",
      [](const py::object& before, const py::object& now) {
        return is_same_value(before.ptr(), now.ptr());
      },
      py::arg("before"), py::arg("now"), "The same object, or plain values with the same bits.");
}

}  // namespace ftax
