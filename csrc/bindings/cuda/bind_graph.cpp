// The rungs of a captured graph. Pointers come as integers, as torch hands them out; the owner that
// comes with them is what keeps them valid.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include "bindings/bindings.h"
#include "bindings/owner.h"
#include "core/error.h"
#include "cuda/graph_runner.h"
#include "cuda/launch_replay.h"
#include "cuda/stream_runner.h"
#include "tape/held_call.h"

namespace ftax {
namespace {

template <typename T>
using Class = py::class_<T, Runner, std::shared_ptr<T>>;

cuda::Carveout parse_carveout(const std::string& text) {
  if (text == "if set") return cuda::Carveout::kIfSet;
  if (text == "always") return cuda::Carveout::kAlways;
  throw InvalidArgumentError("carveout is '" + text + "'; it has to be 'if set' or 'always'");
}

std::string name_memory(CUmemorytype type) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      return "host";
    case CU_MEMORYTYPE_DEVICE:
      return "device";
    case CU_MEMORYTYPE_ARRAY:
      return "array";
    case CU_MEMORYTYPE_UNIFIED:
      return "unified";
  }
  return "unknown";
}

// A graph by the address of its executable; or a collective, and whether it is waited for here and
// not called.
using Given = std::variant<uintptr_t, std::pair<std::shared_ptr<HeldCall>, bool>>;

std::vector<cuda::GraphRunner::Piece> list_pieces(const std::vector<Given>& given) {
  std::vector<cuda::GraphRunner::Piece> pieces;
  for (const Given& item : given) {
    if (const auto* const pointer = std::get_if<uintptr_t>(&item)) {
      pieces.emplace_back(reinterpret_cast<cudaGraphExec_t>(*pointer));
      continue;
    }
    const auto& [held, waits] = std::get<1>(item);
    pieces.emplace_back([held, waits] { waits ? held->wait() : held->run(); });
  }
  return pieces;
}

py::dict describe(const cuda::KernelLaunch& launch) {
  const CUlaunchConfig& config = launch.config;
  py::dict attributes, result;
  for (const CUlaunchAttribute& attribute : launch.attributes) {
    attributes[py::cast(cuda::name_attribute(attribute))] = cuda::describe_value(attribute);
  }
  result["type"] = "kernel";
  result["function"] = launch.name;
  result["grid"] = py::make_tuple(config.gridDimX, config.gridDimY, config.gridDimZ);
  result["block"] = py::make_tuple(config.blockDimX, config.blockDimY, config.blockDimZ);
  result["dynamic_shared_bytes"] = config.sharedMemBytes;
  result["attributes"] = attributes;
  return result;
}

py::dict describe(const cuda::CopyLaunch& launch) {
  const CUDA_MEMCPY3D& copy = launch.parameters;
  py::dict result;
  result["type"] = "memcpy";
  result["source"] = name_memory(copy.srcMemoryType);
  result["destination"] = name_memory(copy.dstMemoryType);
  result["bytes"] = copy.WidthInBytes * copy.Height * copy.Depth;
  return result;
}

py::dict describe(const cuda::MemsetLaunch& launch) {
  const CUDA_MEMSET_NODE_PARAMS& memset = launch.parameters;
  py::dict result;
  result["type"] = "memset";
  result["value"] = memset.value;
  result["bytes"] = memset.width * memset.height * memset.elementSize;
  return result;
}

py::list describe_nodes(const cuda::LaunchReplayRunner& runner) {
  py::list nodes;
  for (const cuda::Launch& launch : runner.graph().launches) {
    nodes.append(std::visit([](const auto& one) { return describe(one); }, launch));
  }
  return nodes;
}

}  // namespace

void bind_graph(py::module_& m) {
  Class<cuda::StreamRunner>(m, "StreamRunner")
      .def(py::init([](std::shared_ptr<Runner> inner, int64_t stream_id, int device_index,
                       int device_type) {
             return std::make_shared<cuda::StreamRunner>(
                 std::move(inner), c10::cuda::CUDAStream::unpack3(
                                       stream_id, static_cast<c10::DeviceIndex>(device_index),
                                       static_cast<c10::DeviceType>(device_type)));
           }),
           py::arg("inner"), py::arg("stream_id"), py::arg("device_index"), py::arg("device_type"));
  Class<cuda::GraphRunner>(m, "GraphRunner")
      .def(py::init([](const std::vector<Given>& pieces, std::string name, py::object owner) {
             return std::make_shared<cuda::GraphRunner>(list_pieces(pieces), std::move(name),
                                                        share_owner(std::move(owner)));
           }),
           py::arg("pieces"), py::arg("name"), py::arg("owner"))
      .def(
          "enqueue",
          [](cuda::GraphRunner& runner) {
            const py::gil_scoped_release release;
            try {
              runner.enqueue();
            } catch (const Error&) {
              throw;
            } catch (const std::exception&) {  // of a collective
              const py::gil_scoped_acquire gil;
              HANDLE_TH_ERRORS
              throw;
              END_HANDLE_TH_ERRORS_PYBIND
            }
          },
          "Launches all on the current stream, and does not wait.");
  Class<cuda::LaunchReplayRunner>(m, "LaunchReplayRunner")
      .def(py::init([](uintptr_t pointer, std::string name, py::object owner,
                       const std::string& carveout, int64_t delay_ns) {
             return std::make_shared<cuda::LaunchReplayRunner>(
                 reinterpret_cast<CUgraph>(pointer), std::move(name), share_owner(std::move(owner)),
                 parse_carveout(carveout), delay_ns);
           }),
           py::arg("graph_pointer"), py::arg("name"), py::arg("owner"), py::kw_only(),
           py::arg("carveout") = "if set", py::arg("delay_ns") = 0)
      .def_property_readonly("nodes", &describe_nodes)
      .def_property_readonly(
          "launches", [](const cuda::LaunchReplayRunner& r) { return r.graph().launches.size(); })
      .def_property_readonly("is_chain",
                             [](const cuda::LaunchReplayRunner& r) { return r.graph().is_chain; })
      .def_property_readonly("lost_programmatic_edges", [](const cuda::LaunchReplayRunner& r) {
        return r.graph().lost_programmatic_edges;
      });
}

}  // namespace ftax
