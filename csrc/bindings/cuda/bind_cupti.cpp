// Traces as Python sees them. Whether torch.profiler is running is asked of torch here, since CUPTI
// would let two clients in and hand each the other's records.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "core/error.h"
#include "cupti/library.h"
#include "cupti/session.h"
#include "cupti/trace.h"

namespace ftax {
namespace {

py::tuple make_triple(const std::array<int32_t, 3>& values) {
  return py::make_tuple(values[0], values[1], values[2]);
}

// What all records of device work have in common.
template <typename Record>
void bind_device_record(py::class_<Record>& type) {
  type.def_readonly("start_ns", &Record::start_ns)
      .def_readonly("end_ns", &Record::end_ns)
      .def_property_readonly("stream_id", [](const Record& r) { return r.origin.stream_id; })
      .def_property_readonly("device_id", [](const Record& r) { return r.origin.device_id; })
      .def_property_readonly("correlation_id",
                             [](const Record& r) { return r.origin.correlation_id; })
      .def_property_readonly("graph_id", [](const Record& r) { return r.origin.graph_id; })
      .def_property_readonly("graph_node_id",
                             [](const Record& r) { return r.origin.graph_node_id; });
}

void bind_records(py::module_& m) {
  using cupti::ApiActivity;
  using cupti::KernelActivity;
  using cupti::MemcpyActivity;
  using cupti::MemsetActivity;
  using cupti::OverheadActivity;
  py::class_<KernelActivity> kernel(m, "KernelActivity");
  bind_device_record(kernel);
  kernel.def_readonly("name", &KernelActivity::name)
      .def_property_readonly("grid", [](const KernelActivity& k) { return make_triple(k.grid); })
      .def_property_readonly("block", [](const KernelActivity& k) { return make_triple(k.block); })
      .def_readonly("static_shared_bytes", &KernelActivity::static_shared_bytes)
      .def_readonly("dynamic_shared_bytes", &KernelActivity::dynamic_shared_bytes)
      .def_readonly("registers_per_thread", &KernelActivity::registers_per_thread);
  py::class_<MemcpyActivity> copy(m, "MemcpyActivity");
  bind_device_record(copy);
  copy.def_readonly("copy_kind", &MemcpyActivity::copy_kind)
      .def_readonly("bytes", &MemcpyActivity::bytes);
  py::class_<MemsetActivity> memset(m, "MemsetActivity");
  bind_device_record(memset);
  memset.def_readonly("value", &MemsetActivity::value)
      .def_readonly("bytes", &MemsetActivity::bytes);
  py::class_<ApiActivity>(m, "ApiActivity")
      .def_readonly("domain", &ApiActivity::domain)
      .def_readonly("name", &ApiActivity::name)
      .def_readonly("start_ns", &ApiActivity::start_ns)
      .def_readonly("end_ns", &ApiActivity::end_ns)
      .def_readonly("correlation_id", &ApiActivity::correlation_id)
      .def_readonly("thread_id", &ApiActivity::thread_id);
  py::class_<OverheadActivity>(m, "OverheadActivity")
      .def_readonly("overhead_kind", &OverheadActivity::overhead_kind)
      .def_readonly("start_ns", &OverheadActivity::start_ns)
      .def_readonly("end_ns", &OverheadActivity::end_ns);
}

// A getter of one list of records; they live in the trace, which stays alive with them.
template <typename Record>
auto get_records(std::vector<Record> cupti::Activities::* records) {
  return [records](const cupti::RawTrace& trace) -> const std::vector<Record>& {
    return trace.activities.*records;
  };
}

void bind_trace(py::module_& m) {
  using cupti::Activities;
  using cupti::RawTrace;
  py::class_<RawTrace>(m, "RawTrace")
      .def_property_readonly("iterations",
                             [](const RawTrace& trace) {
                               py::list result;
                               for (const Request& iteration : trace.iterations) {
                                 result.append(py::make_tuple(
                                     iteration.begin_ns, iteration.issued_ns, iteration.end_ns));
                               }
                               return result;
                             })
      .def_property_readonly("kernels", get_records(&Activities::kernels))
      .def_property_readonly("memcpys", get_records(&Activities::memcpys))
      .def_property_readonly("memsets", get_records(&Activities::memsets))
      .def_property_readonly("api_calls", get_records(&Activities::api_calls))
      .def_property_readonly("overheads", get_records(&Activities::overheads))
      .def_readonly("dropped_records", &RawTrace::dropped_records)
      .def_readonly("buffers", &RawTrace::buffers)
      .def_readonly("cupti_file", &RawTrace::cupti_file)
      .def_readonly("cupti_version", &RawTrace::cupti_version)
      .def_readonly("problems", &RawTrace::problems);
}

void check_torch_profiler_is_off() {
  const py::object profiler = py::module_::import("torch.autograd.profiler");
  if (!py::getattr(profiler, "_is_profiler_enabled", py::bool_(false)).cast<bool>()) return;
  throw UnavailableError(
      "torch.profiler is running, and CUPTI serves one profiler at a time: trace outside of it");
}

}  // namespace

void bind_cupti(py::module_& m) {
  bind_records(m);
  bind_trace(m);
  m.def(
      "trace_runner",
      [](Runner& runner, int iterations, int warmup, const std::vector<std::string>& kinds) {
        check_torch_profiler_is_off();
        const py::gil_scoped_release release;
        return cupti::trace_runner(cupti::Library::open(), runner, iterations, warmup, kinds);
      },
      py::arg("runner"), py::kw_only(), py::arg("iterations"), py::arg("warmup"), py::arg("kinds"));
  m.def("detach_cupti", [] { return cupti::detach(cupti::Library::open()); });
  m.def("cupti_info", [] {
    const cupti::Library& library = cupti::Library::open();
    py::dict result;
    result["library"] = library.path();
    result["version"] = library.version();
    return result;
  });
}

}  // namespace ftax
