// One table says all: which attributes there are, what their default is, how they read. What is at
// its default is not passed: a launch without attributes is what the library made, and is cheaper.
#include "cuda/launch_attributes.h"

#include <array>

namespace ftax::cuda {
namespace {

using Value = CUlaunchAttributeValue;

struct Known {
  CUlaunchAttributeID id;
  const char* name;
  bool (*is_default)(const Value&);
  std::string (*describe)(const Value&);
};

std::string describe_dimensions(unsigned x, unsigned y, unsigned z) {
  return std::to_string(x) + " x " + std::to_string(y) + " x " + std::to_string(z);
}

const auto kKnown = std::to_array<Known>({
    {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, "access policy window",
     [](const Value& v) { return v.accessPolicyWindow.num_bytes == 0; },
     [](const Value& v) { return std::to_string(v.accessPolicyWindow.num_bytes) + " bytes"; }},
    {CU_LAUNCH_ATTRIBUTE_COOPERATIVE, "cooperative",
     [](const Value& v) { return v.cooperative == 0; },
     [](const Value& v) { return std::to_string(v.cooperative); }},
    {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, "cluster dimension",
     [](const Value& v) { return v.clusterDim.x == 0; },
     [](const Value& v) {
       return describe_dimensions(v.clusterDim.x, v.clusterDim.y, v.clusterDim.z);
     }},
    {CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, "cluster scheduling policy",
     [](const Value& v) {
       return v.clusterSchedulingPolicyPreference == CU_CLUSTER_SCHEDULING_POLICY_DEFAULT;
     },
     [](const Value& v) {
       return std::to_string(static_cast<int>(v.clusterSchedulingPolicyPreference));
     }},
    {CU_LAUNCH_ATTRIBUTE_PRIORITY, "priority", [](const Value& v) { return v.priority == 0; },
     [](const Value& v) { return std::to_string(v.priority); }},
    // The default map is (0, 1); (0, 0) is what a node without a map may read as.
    {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, "memory sync domain map",
     [](const Value& v) {
       return v.memSyncDomainMap.default_ == 0 && v.memSyncDomainMap.remote <= 1;
     },
     [](const Value& v) {
       return std::to_string(v.memSyncDomainMap.default_) + ", " +
              std::to_string(v.memSyncDomainMap.remote);
     }},
    {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, "memory sync domain",
     [](const Value& v) { return v.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT; },
     [](const Value& v) { return std::to_string(static_cast<int>(v.memSyncDomain)); }},
#if CUDA_VERSION >= 12080
    {CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, "preferred cluster dimension",
     [](const Value& v) { return v.preferredClusterDim.x == 0; },
     [](const Value& v) {
       return describe_dimensions(v.preferredClusterDim.x, v.preferredClusterDim.y,
                                  v.preferredClusterDim.z);
     }},
#endif
#if CUDA_VERSION >= 13000
    {CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, "NVLink-centric scheduling",
     [](const Value& v) { return v.nvlinkUtilCentricScheduling == 0; },
     [](const Value& v) { return std::to_string(v.nvlinkUtilCentricScheduling); }},
#endif
    {CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, "preferred shared-memory carve-out",
     [](const Value& v) { return v.sharedMemCarveout == 0; },
     [](const Value& v) { return std::to_string(v.sharedMemCarveout); }},
    // Lives in the edges of a graph, never in its nodes.
    {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, "programmatic stream serialization",
     nullptr,
     [](const Value& v) { return std::to_string(v.programmaticStreamSerializationAllowed); }},
});

const Known* find(CUlaunchAttributeID id) {
  for (const Known& known : kKnown) {
    if (known.id == id) return &known;
  }
  return nullptr;
}

}  // namespace

std::vector<CUlaunchAttribute> read_attributes(const Driver& driver, CUgraphNode node,
                                               Carveout carveout) {
  std::vector<CUlaunchAttribute> attributes;
  for (const Known& known : kKnown) {
    if (known.is_default == nullptr) continue;
    CUlaunchAttribute attribute{};
    attribute.id = known.id;
    const CUresult code = driver.graph_kernel_node_get_attribute(node, known.id, &attribute.value);
    // A driver or device that does not know an attribute cannot have it set on a node.
    if (code == CUDA_ERROR_INVALID_VALUE || code == CUDA_ERROR_NOT_SUPPORTED) continue;
    driver.check(code, "cuGraphKernelNodeGetAttribute");
    const bool forced = carveout == Carveout::kAlways &&
                        known.id == CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    if (forced || !known.is_default(attribute.value)) attributes.push_back(attribute);
  }
  return attributes;
}

CUlaunchAttribute make_programmatic_serialization() {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

std::string name_attribute(const CUlaunchAttribute& attribute) {
  const Known* known = find(attribute.id);
  return known == nullptr ? "attribute " + std::to_string(attribute.id) : known->name;
}

std::string describe_value(const CUlaunchAttribute& attribute) {
  const Known* known = find(attribute.id);
  return known == nullptr ? "" : known->describe(attribute.value);
}

}  // namespace ftax::cuda
