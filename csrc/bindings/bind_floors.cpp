// What doctor asks of the core: the cost of the clock, and of crossing into the extension.
#include "bindings/bindings.h"
#include "core/clock.h"

namespace ftax {

void bind_floors(py::module_& m) {
  py::class_<ClockCost>(m, "ClockCost")
      .def_readonly("read_ns", &ClockCost::read_ns)
      .def_readonly("resolution_ns", &ClockCost::resolution_ns);
  m.def("measure_clock_cost", &measure_clock_cost, py::call_guard<py::gil_scoped_release>());
  m.def("now_ns", &now_ns, "CLOCK_MONOTONIC, in ns.");
  m.def("empty", [] {}, "Does nothing: the cost of a call through pybind11.");
}

}  // namespace ftax
