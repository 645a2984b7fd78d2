// What is read from a graph, with a driver of our own in place of CUDA's: a table of functions can
// be filled with ours, so that neither a GPU nor libcuda is needed, only CUDA's headers.
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "cuda/graph_launches.h"

namespace ftax::cuda {
namespace {

struct FakeNode {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  CUDA_MEMSET_NODE_PARAMS memset{};
  std::map<int, CUlaunchAttributeValue> attributes;  // what is not here reads as 0
};

struct FakeEdge {
  size_t from, to;
  bool programmatic = false;
};

struct FakeGraph {
  std::vector<FakeNode> nodes;
  std::vector<FakeEdge> edges;
  CUresult attribute_error = CUDA_SUCCESS;  // of the newest attribute
};

FakeGraph* current = nullptr;  // driver functions have no argument for it

CUgraphNode handle(size_t index) { return reinterpret_cast<CUgraphNode>(index + 1); }
FakeNode& find(CUgraphNode node) { return current->nodes.at(reinterpret_cast<size_t>(node) - 1); }

CUresult get_nodes(CUgraph, CUgraphNode* nodes, size_t* count) {
  *count = current->nodes.size();
  for (size_t i = 0; nodes != nullptr && i < *count; ++i) nodes[i] = handle(i);
  return CUDA_SUCCESS;
}

CUresult get_edges(CUgraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                   size_t* count) {
  *count = current->edges.size();
  for (size_t i = 0; from != nullptr && i < *count; ++i) {
    from[i] = handle(current->edges[i].from);
    to[i] = handle(current->edges[i].to);
    data[i] = {};
    if (current->edges[i].programmatic) data[i].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
  return CUDA_SUCCESS;
}

CUresult get_attribute(CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue* value) {
  if (id == CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
      current->attribute_error != CUDA_SUCCESS) {
    return current->attribute_error;
  }
  *value = find(node).attributes[id];
  return CUDA_SUCCESS;
}

Driver make_driver() {
  Driver driver{};
  driver.get_error_name = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
  };
  driver.get_error_string = [](CUresult, const char** text) {
    *text = "as the test asked";
    return CUDA_SUCCESS;
  };
  driver.graph_get_nodes = get_nodes;
  driver.graph_get_edges = get_edges;
  driver.graph_node_get_type = [](CUgraphNode node, CUgraphNodeType* type) {
    *type = find(node).type;
    return CUDA_SUCCESS;
  };
  driver.graph_kernel_node_get_params = [](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters) {
    *parameters = find(node).kernel;
    return CUDA_SUCCESS;
  };
  driver.graph_kernel_node_get_attribute = get_attribute;
  driver.graph_memset_node_get_params = [](CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters) {
    *parameters = find(node).memset;
    return CUDA_SUCCESS;
  };
  driver.func_get_name = [](const char** name, CUfunction) {
    *name = "a_function";
    return CUDA_SUCCESS;
  };
  driver.kernel_get_name = [](const char** name, CUkernel) {
    *name = "a_kernel";
    return CUDA_SUCCESS;
  };
  return driver;
}

GraphLaunches read(FakeGraph graph, Carveout carveout = Carveout::kIfSet) {
  current = &graph;
  static const Driver driver = make_driver();
  return read_graph(driver, nullptr, carveout);
}

FakeNode make_kernel(unsigned grid = 1) {
  FakeNode node;
  node.kernel.func = reinterpret_cast<CUfunction>(0x10);
  node.kernel.gridDimX = grid;
  return node;
}

FakeNode make_other(CUgraphNodeType type) {
  FakeNode node;
  node.type = type;
  return node;
}

const KernelLaunch& kernel(const GraphLaunches& graph, size_t index) {
  return std::get<KernelLaunch>(graph.launches.at(index));
}

std::string describe_attributes(const KernelLaunch& launch) {
  std::string text;
  for (const CUlaunchAttribute& attribute : launch.attributes) {
    text += name_attribute(attribute) + "=" + describe_value(attribute) + ";";
  }
  return text;
}

TEST(a_plain_kernel_is_launched_without_attributes) {
  const GraphLaunches graph = read({.nodes = {make_kernel(7)}, .edges = {}});
  CHECK(graph.launches.size() == 1 && graph.is_chain);
  CHECK(kernel(graph, 0).config.gridDimX == 7);
  CHECK(kernel(graph, 0).name == "a_function");
  CHECK(kernel(graph, 0).attributes.empty());
}

TEST(a_kernel_that_has_no_function_is_launched_by_its_other_handle) {
  FakeNode node;
  node.kernel.kern = reinterpret_cast<CUkernel>(0x20);
  const GraphLaunches graph = read({.nodes = {node}, .edges = {}});
  CHECK(kernel(graph, 0).function == reinterpret_cast<CUfunction>(0x20));
  CHECK(kernel(graph, 0).name == "a_kernel");
}

TEST(attributes_that_are_set_are_repeated) {
  FakeNode node = make_kernel();
  CUlaunchAttributeValue value{};
  value.clusterDim.x = 2;
  value.clusterDim.y = value.clusterDim.z = 1;
  node.attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION] = value;
  value = {};
  value.cooperative = 1;
  node.attributes[CU_LAUNCH_ATTRIBUTE_COOPERATIVE] = value;
  value = {};
  value.priority = -3;
  node.attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY] = value;
  value = {};
  value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  node.attributes[CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN] = value;
  value = {};
  value.memSyncDomainMap = {2, 3};
  node.attributes[CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP] = value;
  value = {};
  value.sharedMemCarveout = 50;
  node.attributes[CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = value;
  CHECK(describe_attributes(kernel(read({.nodes = {node}, .edges = {}}), 0)) ==
        "cooperative=1;cluster dimension=2 x 1 x 1;priority=-3;memory sync domain map=2, 3;"
        "memory sync domain=1;preferred shared-memory carve-out=50;");
}

TEST(the_default_map_of_memory_domains_is_not_passed) {
  FakeNode node = make_kernel();
  CUlaunchAttributeValue value{};
  value.memSyncDomainMap = {0, 1};
  node.attributes[CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP] = value;
  CHECK(kernel(read({.nodes = {node}, .edges = {}}), 0).attributes.empty());
}

TEST(a_carveout_of_zero_is_passed_only_on_demand) {
  const FakeGraph graph{.nodes = {make_kernel()}, .edges = {}};
  CHECK(describe_attributes(kernel(read(graph, Carveout::kAlways), 0)) ==
        "preferred shared-memory carve-out=0;");
}

TEST(an_attribute_that_the_driver_does_not_know_is_left_out_and_another_failure_is_not) {
  FakeGraph graph{.nodes = {make_kernel()}, .edges = {}};
  graph.attribute_error = CUDA_ERROR_INVALID_VALUE;
  CHECK(kernel(read(graph, Carveout::kAlways), 0).attributes.empty());
  graph.attribute_error = CUDA_ERROR_ILLEGAL_ADDRESS;
  CHECK_THROWS(read(graph), RunnerError, "cuGraphKernelNodeGetAttribute failed with CUDA_ERROR_F");
}

TEST(a_programmatic_edge_becomes_an_attribute_of_the_later_kernel) {
  const GraphLaunches graph = read({.nodes = {make_kernel(), make_kernel(), make_kernel()},
                                    .edges = {{0, 1, true}, {1, 2, false}}});
  CHECK(graph.is_chain && graph.lost_programmatic_edges == 0);
  CHECK(kernel(graph, 0).attributes.empty() && kernel(graph, 2).attributes.empty());
  CHECK(describe_attributes(kernel(graph, 1)) == "programmatic stream serialization=1;");
}

TEST(a_programmatic_edge_that_a_stream_cannot_express_is_counted) {
  const GraphLaunches graph = read({.nodes = {make_kernel(), make_kernel(), make_kernel()},
                                    .edges = {{0, 1, false}, {0, 2, true}, {1, 2, false}}});
  CHECK(!graph.is_chain && graph.lost_programmatic_edges == 1);
  CHECK(kernel(graph, 2).attributes.empty());
}

TEST(launches_come_in_the_order_of_the_edges_and_empty_nodes_go) {
  const GraphLaunches graph =
      read({.nodes = {make_kernel(3), make_other(CU_GRAPH_NODE_TYPE_EMPTY), make_kernel(1)},
            .edges = {{2, 1}, {1, 0}}});
  CHECK(graph.launches.size() == 2 && graph.is_chain);
  CHECK(kernel(graph, 0).config.gridDimX == 1 && kernel(graph, 1).config.gridDimX == 3);
}

TEST(one_row_of_a_memset_gets_a_pitch_and_several_keep_theirs) {
  FakeNode row = make_other(CU_GRAPH_NODE_TYPE_MEMSET), rows = row;
  row.memset = {.dst = 8, .pitch = 0, .value = 1, .elementSize = 4, .width = 10, .height = 1};
  rows.memset = {.dst = 8, .pitch = 512, .value = 1, .elementSize = 4, .width = 10, .height = 2};
  const GraphLaunches graph = read({.nodes = {row, rows}, .edges = {{0, 1}}});
  CHECK(std::get<MemsetLaunch>(graph.launches.at(0)).parameters.pitch == 40);
  CHECK(std::get<MemsetLaunch>(graph.launches.at(1)).parameters.pitch == 512);
}

TEST(nodes_that_cannot_be_launched_are_named) {
  CHECK_THROWS(read({.nodes = {make_other(CU_GRAPH_NODE_TYPE_HOST)}, .edges = {}}),
               UnsupportedError, "a call of a host function (type 3)");
  CHECK_THROWS(read({.nodes = {make_other(static_cast<CUgraphNodeType>(15))}, .edges = {}}),
               UnsupportedError, "a node of unknown kind (type 15)");
}

TEST(an_empty_graph_has_no_launches) {
  const GraphLaunches graph = read({.nodes = {}, .edges = {}});
  CHECK(graph.launches.empty() && graph.is_chain);
}

}  // namespace
}  // namespace ftax::cuda
