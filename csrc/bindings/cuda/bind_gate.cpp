// The gate, the floors that need more than an empty kernel, the cold cache and the profiler's
// ranges. A Python runner takes the GIL in its scope; what opens a gate never needs it.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "cuda/cold_runner.h"
#include "cuda/floor_runners.h"
#include "cuda/launch_queue.h"
#include "cuda/measure_gated.h"
#include "cuda/nvtx.h"

namespace ftax {
namespace {

template <typename T>
using Class = py::class_<T, Runner, std::shared_ptr<T>>;

void bind_floor_runners(py::module_& m) {
  Class<cuda::SynchronizeRunner>(m, "SynchronizeRunner").def(py::init<>());
  Class<cuda::EventPairRunner>(m, "EventPairRunner").def(py::init<>());
  Class<cuda::NullGraphRunner>(m, "NullGraphRunner").def(py::init<>());
  Class<cuda::LaunchBurstRunner>(m, "LaunchBurstRunner").def(py::init<int>(), py::arg("count"));
}

cuda::GateResult measure_gated(Runner& runner, int repetitions, int watchdog_ms,
                               std::optional<int> launches) {
  const cuda::GatePlan plan{.repetitions = repetitions,
                            .watchdog_ns = int64_t{watchdog_ms} * 1'000'000,
                            .launches = launches};
  return cuda::measure_gated(runner, plan);
}

}  // namespace

void bind_gate(py::module_& m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<cuda::GatedRepetition>(m, "GatedRepetition")
      .def_readonly("issue_ns", &cuda::GatedRepetition::issue_ns)
      .def_readonly("device_span_ns", &cuda::GatedRepetition::device_span_ns)
      .def_readonly("drain_ns", &cuda::GatedRepetition::drain_ns)
      .def_readonly("cut", &cuda::GatedRepetition::cut);
  py::class_<cuda::GateResult>(m, "GateResult")
      .def_readonly("repetitions", &cuda::GateResult::repetitions)
      .def_readonly("reason", &cuda::GateResult::reason);
  m.def("measure_gated", &measure_gated, py::arg("runner"), py::kw_only(),
        py::arg("repetitions") = 20, py::arg("watchdog_ms") = 2000,
        py::arg("launches") = py::none(), Release());
  m.def("probe_launch_queue", &cuda::probe_launch_queue, Release());
  bind_floor_runners(m);
  Class<cuda::ColdRunner>(m, "ColdRunner")
      .def(py::init<std::shared_ptr<Runner>>(), py::arg("inner"));
  Class<cuda::NvtxRunner>(m, "NvtxRunner")
      .def(py::init<std::shared_ptr<Runner>, std::string>(), py::arg("inner"), py::arg("label"));
  m.def("profile_once", &cuda::profile_once, py::arg("runner"), Release());
}

}  // namespace ftax
