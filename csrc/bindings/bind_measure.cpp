// Runner, RoundPlan and measure_rounds. The GIL is released for the whole measurement and taken
// back by those who need it: the Python runner for its round, the progress callback between rounds.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "measure/rounds.h"

namespace ftax {
namespace {

void bind_plan(py::module_& m) {
  py::enum_<Mode>(m, "Mode")
      .value("latency", Mode::kLatency)
      .value("throughput", Mode::kThroughput);
  py::class_<StoppingRule>(m, "StoppingRule")
      .def(py::init<>())
      .def_readwrite("min_rounds", &StoppingRule::min_rounds)
      .def_readwrite("max_rounds", &StoppingRule::max_rounds)
      .def_readwrite("target_ratio", &StoppingRule::target_ratio)
      .def_readwrite("confidence", &StoppingRule::confidence)
      .def_readwrite("time_limit_ns", &StoppingRule::time_limit_ns)
      .def_readwrite("fixed", &StoppingRule::fixed)
      .def("looks", &StoppingRule::compute_looks);
  py::class_<WarmupPlan>(m, "WarmupPlan")
      .def(py::init<>())
      .def_readwrite("iterations", &WarmupPlan::iterations)
      .def_readwrite("min_iterations", &WarmupPlan::min_iterations)
      .def_readwrite("limit_ns", &WarmupPlan::limit_ns)
      .def_readwrite("tolerance_ratio", &WarmupPlan::tolerance_ratio);
  py::class_<RoundPlan>(m, "RoundPlan")
      .def(py::init<>())
      .def_readwrite("mode", &RoundPlan::mode)
      .def_readwrite("rule", &RoundPlan::rule)
      .def_readwrite("warmup", &RoundPlan::warmup)
      .def_readwrite("round_duration_ns", &RoundPlan::round_duration_ns)
      .def_readwrite("samples_per_round", &RoundPlan::samples_per_round)
      .def_readwrite("dropped_per_round", &RoundPlan::dropped_per_round)
      .def_readwrite("seed", &RoundPlan::seed)
      .def_readwrite("cpus", &RoundPlan::cpus)
      .def_readwrite("patience_ns", &RoundPlan::patience_ns)
      .def_readwrite("quiet_wide_ns", &RoundPlan::quiet_wide_ns)
      .def("check", &RoundPlan::check);
}

void bind_result(py::module_& m) {
  py::class_<WarmupReport>(m, "WarmupReport")
      .def_readonly("iterations", &WarmupReport::iterations)
      .def_readonly("elapsed_ns", &WarmupReport::elapsed_ns)
      .def_readonly("latency_ns", &WarmupReport::latency_ns)
      .def_readonly("mean_ns", &WarmupReport::mean_ns)
      .def_readonly("steady", &WarmupReport::steady);
  py::class_<HostProbe>(m, "HostProbe")
      .def_readonly("loop_ns", &HostProbe::loop_ns)
      .def_readonly("steal_ticks", &HostProbe::steal_ticks)
      .def_readonly("wide_ns", &HostProbe::wide_ns)
      .def_readonly("within_ns", &HostProbe::within_ns)
      .def_readonly("waited_ns", &HostProbe::waited_ns)
      .def_readonly("left", &HostProbe::left)
      .def_readonly("queued_ratio", &HostProbe::queued_ratio);
  py::class_<KernelUse>(m, "KernelUse")
      .def_readonly("page_faults", &KernelUse::page_faults)
      .def_readonly("system_ns", &KernelUse::system_ns);
  py::class_<RunnerRounds>(m, "RunnerRounds")
      .def_readonly("samples_ns", &RunnerRounds::samples_ns)
      .def_readonly("values_ns", &RunnerRounds::values_ns)
      .def_readonly("queued_ratios", &RunnerRounds::queued_ratios)
      .def_readonly("waited_ns", &RunnerRounds::waited_ns)
      .def_readonly("kernel_use", &RunnerRounds::kernel_use)
      .def_readonly("positions", &RunnerRounds::positions)
      .def_readonly("rebuilt_rounds", &RunnerRounds::rebuilt_rounds)
      .def_readonly("warmup", &RunnerRounds::warmup)
      .def_readonly("dropped", &RunnerRounds::dropped)
      .def_readonly("burst", &RunnerRounds::burst)
      .def_readonly("error", &RunnerRounds::error);
  py::class_<RoundsResult>(m, "RoundsResult")
      .def_readonly("runners", &RoundsResult::runners)
      .def_readonly("probes", &RoundsResult::probes)
      .def_readonly("elapsed_ns", &RoundsResult::elapsed_ns)
      .def_property_readonly("stop_reason",
                             [](const RoundsResult& r) { return to_string(r.stop_reason); })
      .def_property_readonly("disturbed_rounds",
                             [](const RoundsResult& r) { return find_disturbed_rounds(r.probes); });
}

// What other processes agree to, told by a function of a number.
Agree make_agree(py::object callback) {
  if (callback.is_none()) return {};
  return [callback = std::move(callback)](int64_t own) {
    const py::gil_scoped_acquire gil;
    return callback(own).cast<int64_t>();
  };
}

// Between rounds: lets Ctrl-C in, then tells the caller how far it is.
Progress make_progress(py::object callback) {
  return [callback = std::move(callback)](const char* phase, int done, int total) {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0 && !callback.is_none()) {
      PyObject* result = PyObject_CallFunction(callback.ptr(), "sii", phase, done, total);
      Py_XDECREF(result);
    }
    if (PyErr_Occurred() == nullptr) return;
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0) throw py::error_already_set();
    PyErr_Clear();
    throw Interrupted("interrupted between rounds");
  };
}

}  // namespace

void bind_measure(py::module_& m) {
  m.attr("CHAIN_CYCLES") = kChainCycles;
  m.def("choose_rounds", &choose_rounds, py::arg("rounds"), py::arg("disturbed"));
  py::class_<Runner, std::shared_ptr<Runner>>(m, "Runner")
      .def_property_readonly("name", &Runner::name)
      .def_property_readonly("host", [](const Runner& r) { return to_string(r.host()); })
      .def_property_readonly("needs_gil", &Runner::needs_gil)
      .def_property_readonly("needs_prepare", &Runner::needs_prepare)
      .def(
          "run_once",
          [](Runner& runner) {
            const auto scope = runner.enter();
            run_once(runner);
          },
          py::call_guard<py::gil_scoped_release>(),
          "One synchronised inference, prepared as the timed loop does; untimed.")
      .def(
          "run_together",
          [](const std::shared_ptr<Runner>& runner, py::object agree) {
            const Agree together = make_agree(std::move(agree));
            const py::gil_scoped_release release;
            const auto scope = runner->enter();
            PairedRunner paired(runner, together);
            const Request request = run_once(paired);
            return request.end_ns - request.begin_ns;
          },
          py::arg("agree"),
          "The same, begun when all that agree have prepared theirs; how long it took, ns.");
  bind_plan(m);
  bind_result(m);
  m.def(
      "measure_rounds",
      [](const std::vector<std::shared_ptr<Runner>>& runners, const RoundPlan& plan,
         py::object progress, py::object agree) {
        const Progress tell = make_progress(std::move(progress));
        const Agree together = make_agree(std::move(agree));
        const py::gil_scoped_release release;
        return measure_rounds(runners, plan, tell, together);
      },
      py::arg("runners"), py::arg("plan"), py::arg("progress") = py::none(),
      py::arg("agree") = py::none());
}

}  // namespace ftax
