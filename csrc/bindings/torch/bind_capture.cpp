// What a captured call is checked against: its arguments, and what it read of Python.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/collectable.h"
#include "bindings/torch/guards.h"
#include "bindings/torch/python_values.h"
#include "bindings/torch/signature.h"

namespace ftax {
namespace {

// The memory from which a graph reads what it is given.
class OwnInputs {
 public:
  explicit OwnInputs(std::vector<at::Tensor> tensors) : own_(std::move(tensors)) {
    for (const at::Tensor& tensor : own_) memory_.insert(tensor.storage().unsafeGetStorageImpl());
  }

  // Copies what is not there already; which places were copied.
  [[nodiscard]] std::vector<size_t> take(const std::vector<at::Tensor>& given) {
    const at::NoGradGuard no_grad;
    std::vector<size_t> places;
    for (size_t i = 0; i < own_.size(); ++i) {
      if (given.at(i).const_data_ptr() != own_[i].const_data_ptr()) places.push_back(i);
    }
    copy(own_, given, places, is_tangled(given, places));
    return places;
  }

  // Copies these back, for a graph that writes into its inputs.
  void give_back(const std::vector<at::Tensor>& given, const std::vector<size_t>& places) const {
    const at::NoGradGuard no_grad;
    copy(given, own_, places, is_tangled(given, places));
  }

 private:
  // Whether one of these lies where the graph reads another: who was lent them may swap them.
  [[nodiscard]] bool is_tangled(const std::vector<at::Tensor>& given,
                                const std::vector<size_t>& places) const {
    return std::ranges::any_of(places, [&](const size_t place) {
      const at::Tensor& tensor = given[place];
      return tensor.has_storage() && memory_.contains(tensor.storage().unsafeGetStorageImpl());
    });
  }

  static void copy(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                   const std::vector<size_t>& places, bool reads_all_first) {
    std::vector<at::Tensor> contents;
    contents.reserve(places.size());
    for (const size_t place : places) {
      contents.push_back(reads_all_first ? from[place].clone() : from[place]);
    }
    for (size_t i = 0; i < places.size(); ++i) to[places[i]].copy_(contents[i]);
  }

  std::vector<at::Tensor> own_;
  std::unordered_set<const c10::StorageImpl*> memory_;
};

// What one compiled graph was called with: its inputs, which may lie elsewhere in another call, and
// weights and plain values, which have to be what they were.
class GraphArguments {
 public:
  GraphArguments(py::tuple args, std::vector<size_t> inputs)
      : args_(std::move(args)), inputs_(std::move(inputs)) {
    std::vector<bool> is_input(args_.size());
    for (const size_t place : inputs_) is_input.at(place) = true;
    for (size_t i = 0; i < args_.size(); ++i) {
      if (!THPVariable_Check(args_[i].ptr())) continue;
      const at::Tensor& tensor = THPVariable_Unpack(args_[i].ptr());
      const void* memory = is_input[i] ? nullptr : tensor.const_data_ptr();
      tensors_.push_back(
          {i, tensor.sizes().vec(), tensor.strides().vec(), tensor.options(), memory});
    }
  }

  // The inputs among other arguments, if all else is the same.
  [[nodiscard]] std::optional<std::vector<at::Tensor>> match(const py::tuple& args) const {
    if (args.size() != args_.size()) return std::nullopt;
    size_t next = 0;
    for (size_t i = 0; i < args.size(); ++i) {
      const bool is_tensor = next < tensors_.size() && tensors_[next].place == i;
      if (is_tensor != THPVariable_Check(args[i].ptr())) return std::nullopt;
      if (is_tensor ? !is_like(tensors_[next++], THPVariable_Unpack(args[i].ptr()))
                    : !args[i].equal(args_[i])) {
        return std::nullopt;
      }
    }
    std::vector<at::Tensor> inputs;
    inputs.reserve(inputs_.size());
    for (const size_t place : inputs_) inputs.push_back(THPVariable_Unpack(args[place].ptr()));
    return inputs;
  }

  // For Python's collector of garbage.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(args_.ptr());
    return 0;
  }
  void clear() { const py::tuple args = std::exchange(args_, py::tuple()); }

 private:
  struct Seen {
    size_t place;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    at::TensorOptions options;
    const void* memory;  // null: any
  };

  static bool is_like(const Seen& seen, const at::Tensor& tensor) {
    return (seen.memory == nullptr || tensor.const_data_ptr() == seen.memory) &&
           tensor.sizes() == seen.sizes && tensor.strides() == seen.strides &&
           tensor.scalar_type() == c10::typeMetaToScalarType(seen.options.dtype()) &&
           tensor.device() == seen.options.device();
  }

  py::tuple args_;
  std::vector<size_t> inputs_;
  std::vector<Seen> tensors_;
};

// Here, since Python takes ten times as long to look at some hundred thousand objects. A code is
// known by its address: to compare two takes longer than all the rest, and equal ones may be of
// functions of which one ran.
py::list find_functions(const py::list& objects, const py::tuple& codes) {
  std::unordered_set<PyObject*> wanted;
  for (const py::handle code : codes) wanted.insert(code.ptr());
  py::list found;
  for (const py::handle item : objects) {
    if (PyFunction_Check(item.ptr()) && wanted.contains(PyFunction_GET_CODE(item.ptr()))) {
      found.append(item);
    }
  }
  return found;
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
