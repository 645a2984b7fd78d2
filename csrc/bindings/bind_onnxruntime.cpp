// ONNX Runtime as Python sees it. A tensor crosses as address, bytes, shape and type name, so this
// file needs no header of tensors; whoever binds keeps the tensor alive and hands it to the runner.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "bindings/owner.h"
#include "onnxruntime/element_type.h"
#include "onnxruntime/io_binding.h"
#include "onnxruntime/library.h"
#include "onnxruntime/session.h"
#include "runners/onnxruntime_runner.h"

namespace ftax {
namespace {

namespace ort = ::ftax::onnxruntime;

// (name, element type, shape); a dimension is an int, its name, or None.
py::list describe(const std::vector<ort::ValueInfo>& values) {
  py::list result;
  for (const ort::ValueInfo& value : values) {
    py::list shape;
    for (const ort::Dimension& dimension : value.shape) {
      if (dimension.size >= 0) {
        shape.append(dimension.size);
      } else if (dimension.symbol.empty()) {
        shape.append(py::none());
      } else {
        shape.append(dimension.symbol);
      }
    }
    result.append(py::make_tuple(value.name, ort::find_element_type(value.element_type).name,
                                 py::tuple(shape)));
  }
  return result;
}

ort::TensorView make_view(uintptr_t address, size_t bytes, std::vector<int64_t> shape,
                          std::string element_type, const std::string& device) {
  return {reinterpret_cast<void*>(address), bytes, std::move(shape), std::move(element_type),
          ort::parse_device(device)};
}

using Options = std::map<std::string, std::string>;

std::shared_ptr<ort::IoBinding> make_session(const ort::Library& library, std::string model_path,
                                             const std::string& optimization, int intra_op_threads,
                                             const std::string& provider, Options provider_options,
                                             int device_id, uintptr_t user_compute_stream) {
  const ort::SessionOptions options{
      .model_path = std::move(model_path),
      .optimization = ort::parse_optimization(optimization),
      .intra_op_threads = intra_op_threads,
      .provider = ort::parse_provider(provider),
      .provider_options = std::move(provider_options),
      .device_id = device_id,
      .user_compute_stream = reinterpret_cast<void*>(user_compute_stream),
  };
  const py::gil_scoped_release release;
  return std::make_shared<ort::IoBinding>(std::make_shared<ort::Session>(library, options));
}

void bind_session(py::module_& m) {
  py::class_<ort::BoundOutput>(m, "OnnxRuntimeOutput")
      .def_readonly("name", &ort::BoundOutput::name)
      .def_readonly("element_type", &ort::BoundOutput::element_type)
      .def_readonly("shape", &ort::BoundOutput::shape)
      .def_readonly("memory", &ort::BoundOutput::memory)
      .def_property_readonly("data_ptr", [](const ort::BoundOutput& output) {
        return reinterpret_cast<uintptr_t>(output.data);
      });
  py::class_<ort::IoBinding, std::shared_ptr<ort::IoBinding>>(m, "OnnxRuntimeSession")
      .def(py::init(&make_session), py::arg("library"), py::arg("model_path"), py::kw_only(),
           py::arg("optimization") = "all", py::arg("intra_op_threads") = 1,
           py::arg("provider") = "cpu", py::arg("provider_options") = Options(),
           py::arg("device_id") = 0, py::arg("user_compute_stream") = 0)
      .def_property_readonly(
          "inputs", [](const ort::IoBinding& self) { return describe(self.session().inputs()); })
      .def_property_readonly(
          "outputs", [](const ort::IoBinding& self) { return describe(self.session().outputs()); })
      .def("count_nodes", [](const ort::IoBinding& self) { return self.session().count_nodes(); })
      .def(
          "bind_input",
          [](ort::IoBinding& self, const std::string& name, uintptr_t address, size_t bytes,
             std::vector<int64_t> shape, std::string element_type, const std::string& device) {
            self.bind_input(
                name, make_view(address, bytes, std::move(shape), std::move(element_type), device));
          },
          py::arg("name"), py::arg("data_ptr"), py::arg("bytes"), py::arg("shape"),
          py::arg("element_type"), py::arg("device") = "cpu")
      .def(
          "bind_output",
          [](ort::IoBinding& self, const std::string& name, uintptr_t address, size_t bytes,
             std::vector<int64_t> shape, std::string element_type, const std::string& device) {
            self.bind_output(
                name, make_view(address, bytes, std::move(shape), std::move(element_type), device));
          },
          py::arg("name"), py::arg("data_ptr"), py::arg("bytes"), py::arg("shape"),
          py::arg("element_type"), py::arg("device") = "cpu")
      .def(
          "bind_output_to_device",
          [](ort::IoBinding& self, const std::string& name, const std::string& device) {
            self.bind_output(name, ort::parse_device(device));
          },
          py::arg("name"), py::arg("device") = "cpu")
      .def("run", &ort::IoBinding::run, py::call_guard<py::gil_scoped_release>())
      .def("collect_outputs", &ort::IoBinding::collect_outputs);
}

}  // namespace

void bind_onnxruntime(py::module_& m) {
  // Never destroyed, so Python must not own it.
  py::class_<ort::Library, std::unique_ptr<ort::Library, py::nodelete>>(m, "OnnxRuntimeLibrary")
      .def_property_readonly("path", &ort::Library::path)
      .def_property_readonly("version", &ort::Library::version)
      .def_property_readonly("build_info", &ort::Library::build_info)
      .def_property_readonly("providers", &ort::Library::collect_providers);
  m.def(
      "find_onnx_element_type",
      [](const std::string& name) { return ort::find_element_type(name).code; }, py::arg("name"));
  m.def("open_onnxruntime", &ort::Library::open, py::arg("path"),
        py::return_value_policy::reference);
  bind_session(m);
  py::class_<OnnxRuntimeRunner, Runner, std::shared_ptr<OnnxRuntimeRunner>>(m, "OnnxRuntimeRunner")
      .def(py::init([](std::shared_ptr<ort::IoBinding> session, std::string name,
                       const std::string& device, py::object owner) {
             return std::make_shared<OnnxRuntimeRunner>(std::move(session), std::move(name),
                                                        c10::Device(device),
                                                        share_owner(std::move(owner)));
           }),
           py::arg("session"), py::arg("name"), py::arg("device") = "cpu",
           py::arg("memory_owner") = py::none())
      .def_property_readonly("session", &OnnxRuntimeRunner::binding);
}

}  // namespace ftax
