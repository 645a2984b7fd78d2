// Runtimes of others as Python sees them. Tensors and streams cross as addresses: whoever binds
// keeps the tensors alive and hands them to the runner.
#include <c10/core/DeviceGuard.h>
#include <pybind11/stl.h>

#include <array>
#include <string_view>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/owner.h"
#include "core/error.h"
#include "runners/plugin_runner.h"

namespace ftax {
namespace {

using Code = std::pair<std::string_view, int32_t>;

constexpr std::array<Code, 3> kKinds{
    {{"weight", FTAX_WEIGHT}, {"input", FTAX_INPUT}, {"output", FTAX_OUTPUT}}};
constexpr std::array<Code, 10> kDtypes{{{"float32", FTAX_FLOAT32},
                                        {"float16", FTAX_FLOAT16},
                                        {"bfloat16", FTAX_BFLOAT16},
                                        {"float64", FTAX_FLOAT64},
                                        {"int8", FTAX_INT8},
                                        {"int16", FTAX_INT16},
                                        {"int32", FTAX_INT32},
                                        {"int64", FTAX_INT64},
                                        {"uint8", FTAX_UINT8},
                                        {"bool", FTAX_BOOL}}};

template <size_t N>
int32_t find_code(const std::array<Code, N>& codes, const char* what, const std::string& name) {
  for (const auto& [known, code] : codes) {
    if (known == name) return code;
  }
  throw UnsupportedError(std::string(what) + " is '" + name +
                         "', which ftax/runner.h has no code for");
}

void* to_pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

std::shared_ptr<Plugin> make_plugin(const PluginLibrary& library, const std::string& config,
                                    const std::string& device, int threads) {
  const c10::Device where(device);
  const py::gil_scoped_release release;
  return std::make_shared<Plugin>(library, config, where, threads);
}

// One call of an inference, from Python: each with the device made current.
template <void (Plugin::*Call)(void*)>
void call_on_device(Plugin& self, uintptr_t stream) {
  const c10::DeviceGuard current(self.device());
  (self.*Call)(to_pointer(stream));
}

void bind_tensor(Plugin& self, const std::string& kind, const std::string& name, uintptr_t address,
                 std::vector<int64_t> shape, const std::string& dtype) {
  const PluginTensor tensor{to_pointer(address), std::move(shape),
                            find_code(kDtypes, "dtype", dtype)};
  const int32_t code = find_code(kKinds, "kind", kind);
  const py::gil_scoped_release release;
  self.bind(code, name, tensor);
}

}  // namespace

void bind_plugin(py::module_& m) {
  using Release = py::call_guard<py::gil_scoped_release>;
  m.attr("RUNNER_ABI_VERSION") = FTAX_RUNNER_ABI_VERSION;
  m.attr("NO_REASON") = kNoReason;
  m.attr("THREW") = kThrew;
  const auto has = [](uint64_t bit) {
    return [bit](const PluginLibrary& self) { return (self.api().capabilities & bit) != 0; };
  };
  // Never destroyed, so Python must not own it.
  py::class_<PluginLibrary, std::unique_ptr<PluginLibrary, py::nodelete>>(m, "PluginLibrary")
      .def_property_readonly("name", &PluginLibrary::name)
      .def_property_readonly("runs_on_cpu", has(FTAX_RUNS_ON_CPU))
      .def_property_readonly("runs_on_cuda", has(FTAX_RUNS_ON_CUDA))
      .def_property_readonly(
          "has_prepare", [](const PluginLibrary& self) { return self.api().prepare != nullptr; });
  m.def("open_plugin", &PluginLibrary::open, py::arg("path"), py::return_value_policy::reference,
        Release());
  py::class_<Plugin, std::shared_ptr<Plugin>>(m, "Plugin")
      .def(py::init(&make_plugin), py::arg("library"), py::arg("config"), py::arg("device"),
           py::arg("threads"))
      .def("bind", &bind_tensor, py::arg("kind"), py::arg("name"), py::arg("data_ptr"),
           py::arg("shape"), py::arg("dtype"))
      .def("prepare", &call_on_device<&Plugin::prepare>, py::arg("stream") = 0, Release())
      .def("enqueue", &call_on_device<&Plugin::enqueue>, py::arg("stream") = 0, Release())
      .def("synchronize", &call_on_device<&Plugin::synchronize>, py::arg("stream") = 0, Release());
  py::class_<PluginRunner, Runner, std::shared_ptr<PluginRunner>>(m, "PluginRunner")
      .def(py::init([](std::shared_ptr<Plugin> plugin, std::string name, const std::string& device,
                       uintptr_t stream, py::object owner) {
             return std::make_shared<PluginRunner>(std::move(plugin), std::move(name),
                                                   c10::Device(device), to_pointer(stream),
                                                   share_owner(std::move(owner)));
           }),
           py::arg("plugin"), py::arg("name"), py::arg("device"), py::arg("stream") = 0,
           py::arg("memory_owner") = py::none());
}

}  // namespace ftax
