// The runners that need no libtorch: the empty one and the Python callable.
#include "bindings/bindings.h"
#include "runners/delay_runner.h"
#include "runners/empty_runner.h"
#include "runners/python_runner.h"

namespace ftax {

void bind_runners(py::module_& m) {
  py::enum_<GradMode>(m, "GradMode")
      .value("inference", GradMode::kInference)
      .value("no_grad", GradMode::kNoGrad)
      .value("grad", GradMode::kGrad);
  py::class_<EmptyRunner, Runner, std::shared_ptr<EmptyRunner>>(m, "EmptyRunner").def(py::init<>());
  py::class_<DelayRunner, Runner, std::shared_ptr<DelayRunner>>(m, "DelayRunner")
      .def(py::init<std::shared_ptr<Runner>, int64_t>(), py::arg("inner"), py::arg("delay_ns"));
  py::class_<PythonRunner, Runner, std::shared_ptr<PythonRunner>>(m, "PythonRunner")
      .def(py::init([](py::object callable, std::string name, const std::string& device,
                       GradMode grad_mode, py::object scope, py::object count_rebuilds) {
             return std::make_shared<PythonRunner>(std::move(callable), std::move(name),
                                                   c10::Device(device), grad_mode, std::move(scope),
                                                   std::move(count_rebuilds));
           }),
           py::arg("callable"), py::arg("name"), py::arg("device"), py::arg("grad_mode"),
           py::arg("scope") = py::none(), py::arg("count_rebuilds") = py::none())
      .def_property_readonly("callable", &PythonRunner::callable)
      .def_property_readonly("device", [](const PythonRunner& r) { return r.device().str(); })
      .def_property_readonly("grad_mode", &PythonRunner::grad_mode);
}

}  // namespace ftax
