// Edges are read with their data, for programmatic dependencies live there and nowhere else: a
// query without it fails on a graph that has any.
#include "cuda/graph_launches.h"

#include <unordered_map>

#include "core/error.h"
#include "cuda/graph_order.h"

namespace ftax::cuda {
namespace {

const char* name_type(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_HOST:
      return "a call of a host function";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "a graph inside the graph";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "a wait for an event";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "the record of an event";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "an external semaphore";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "an allocation of memory";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "a release of memory";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "a batch of memory operations";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "a conditional node";
    default:
      return "a node of unknown kind";
  }
}

std::vector<CUgraphNode> read_nodes(const Driver& driver, CUgraph graph) {
  std::size_t count = 0;
  driver.check(driver.graph_get_nodes(graph, nullptr, &count), "cuGraphGetNodes");
  std::vector<CUgraphNode> nodes(count);
  if (count > 0) {
    driver.check(driver.graph_get_nodes(graph, nodes.data(), &count), "cuGraphGetNodes");
  }
  return nodes;
}

std::vector<Edge> read_edges(const Driver& driver, CUgraph graph,
                             const std::vector<CUgraphNode>& nodes) {
  std::size_t count = 0;
  driver.check(driver.graph_get_edges(graph, nullptr, nullptr, nullptr, &count), "cuGraphGetEdges");
  if (count == 0) return {};
  std::vector<CUgraphNode> from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  driver.check(driver.graph_get_edges(graph, from.data(), to.data(), data.data(), &count),
               "cuGraphGetEdges");
  std::unordered_map<CUgraphNode, std::size_t> numbers;
  for (std::size_t i = 0; i < nodes.size(); ++i) numbers.emplace(nodes[i], i);
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < count; ++i) {
    edges.push_back({.from = numbers.at(from[i]),
                     .to = numbers.at(to[i]),
                     .programmatic = data[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC});
  }
  return edges;
}

// For each node: whether its launch may overlap the one in front of it in the stream.
std::vector<bool> find_overlaps(const Order& order, const std::vector<Edge>& edges,
                                std::size_t& lost) {
  std::vector<std::size_t> place(order.nodes.size()), incoming(order.nodes.size(), 0);
  for (std::size_t i = 0; i < order.nodes.size(); ++i) place[order.nodes[i]] = i;
  for (const Edge& edge : edges) ++incoming[edge.to];
  std::vector<bool> overlaps(order.nodes.size(), false);
  for (const Edge& edge : edges) {
    if (!edge.programmatic) continue;
    if (place[edge.to] == place[edge.from] + 1 && incoming[edge.to] == 1) {
      overlaps[edge.to] = true;
    } else {
      ++lost;
    }
  }
  return overlaps;
}

std::string find_name(const Driver& driver, const CUDA_KERNEL_NODE_PARAMS& parameters) {
  const char* name = nullptr;
  const CUresult code = parameters.func != nullptr ? driver.func_get_name(&name, parameters.func)
                                                   : driver.kernel_get_name(&name, parameters.kern);
  driver.check(code, parameters.func != nullptr ? "cuFuncGetName" : "cuKernelGetName");
  return name == nullptr ? "" : name;
}

KernelLaunch read_kernel(const Driver& driver, CUgraphNode node, Carveout carveout, bool overlaps) {
  CUDA_KERNEL_NODE_PARAMS parameters{};
  driver.check(driver.graph_kernel_node_get_params(node, &parameters),
               "cuGraphKernelNodeGetParams");
  KernelLaunch launch{
      .config = {.gridDimX = parameters.gridDimX,
                 .gridDimY = parameters.gridDimY,
                 .gridDimZ = parameters.gridDimZ,
                 .blockDimX = parameters.blockDimX,
                 .blockDimY = parameters.blockDimY,
                 .blockDimZ = parameters.blockDimZ,
                 .sharedMemBytes = parameters.sharedMemBytes,
                 .hStream = nullptr,
                 .attrs = nullptr,
                 .numAttrs = 0},
      .function = parameters.func != nullptr ? parameters.func
                                             : reinterpret_cast<CUfunction>(parameters.kern),
      .name = find_name(driver, parameters),
      .parameters = parameters.kernelParams,
      .extra = parameters.extra,
      .attributes = read_attributes(driver, node, carveout),
  };
  if (overlaps) launch.attributes.push_back(make_programmatic_serialization());
  return launch;
}

MemsetLaunch read_memset(const Driver& driver, CUgraphNode node) {
  MemsetLaunch launch{};
  CUDA_MEMSET_NODE_PARAMS& parameters = launch.parameters;
  driver.check(driver.graph_memset_node_get_params(node, &parameters),
               "cuGraphMemsetNodeGetParams");
  // A node ignores the pitch of a single row; the call that replaces it checks it.
  if (parameters.height <= 1) parameters.pitch = parameters.width * parameters.elementSize;
  return launch;
}

}  // namespace

GraphLaunches read_graph(const Driver& driver, CUgraph graph, Carveout carveout) {
  const std::vector<CUgraphNode> nodes = read_nodes(driver, graph);
  const std::vector<Edge> edges = read_edges(driver, graph, nodes);
  const Order order = order_nodes(nodes.size(), edges);
  GraphLaunches result{.launches = {}, .is_chain = order.is_chain, .lost_programmatic_edges = 0};
  const std::vector<bool> overlaps = find_overlaps(order, edges, result.lost_programmatic_edges);
  for (const std::size_t number : order.nodes) {
    CUgraphNode node = nodes[number];
    CUgraphNodeType type{};
    driver.check(driver.graph_node_get_type(node, &type), "cuGraphNodeGetType");
    if (type == CU_GRAPH_NODE_TYPE_EMPTY) continue;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      result.launches.emplace_back(read_kernel(driver, node, carveout, overlaps[number]));
    } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
      CopyLaunch launch{};
      driver.check(driver.graph_memcpy_node_get_params(node, &launch.parameters),
                   "cuGraphMemcpyNodeGetParams");
      result.launches.emplace_back(launch);
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
      result.launches.emplace_back(read_memset(driver, node));
    } else {
      throw UnsupportedError(std::string("the graph holds ") + name_type(type) + " (type " +
                             std::to_string(static_cast<int>(type)) +
                             "), which cannot be replayed launch by launch; use cuda-graph");
    }
  }
  return result;
}

}  // namespace ftax::cuda
