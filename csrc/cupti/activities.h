// What a trace consists of, as plain values: no CUPTI type gets past this file, so that whoever
// reads a trace needs no CUPTI header. Times are CLOCK_MONOTONIC ns, as everywhere in ftax; a time
// of 0 means that CUPTI could not tell.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ftax::cupti {

// Where work on a device came from. The correlation id is that of the API call that issued it; in a
// graph launch it is shared by all nodes, which the node ids tell apart. 0: not from a graph.
struct Origin {
  uint32_t device_id = 0;
  uint32_t stream_id = 0;
  uint32_t correlation_id = 0;
  uint32_t graph_id = 0;
  uint64_t graph_node_id = 0;
};

struct KernelActivity {
  std::string name;  // mangled
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::array<int32_t, 3> grid{};   // x, y, z
  std::array<int32_t, 3> block{};  // x, y, z
  int32_t static_shared_bytes = 0;
  int32_t dynamic_shared_bytes = 0;
  int32_t registers_per_thread = 0;
  Origin origin;
};

struct MemcpyActivity {
  std::string copy_kind;  // "HtoD", "DtoH", "DtoD", "PtoP" or "other"
  uint64_t bytes = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  Origin origin;
};

struct MemsetActivity {
  uint32_t value = 0;
  uint64_t bytes = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  Origin origin;
};

struct ApiActivity {
  std::string domain;  // "runtime" or "driver"
  std::string name;    // e.g. "cudaLaunchKernel"
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t correlation_id = 0;
  uint32_t thread_id = 0;
};

// Time that CUPTI or the driver spent on something that the program did not ask for.
struct OverheadActivity {
  std::string overhead_kind;  // e.g. "buffer flush"
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct Activities {
  std::vector<KernelActivity> kernels;
  std::vector<MemcpyActivity> memcpys;
  std::vector<MemsetActivity> memsets;
  std::vector<ApiActivity> api_calls;
  std::vector<OverheadActivity> overheads;
  std::map<int32_t, int64_t> records_by_kind;  // CUpti_ActivityKind, those not listed above too
  int64_t unreadable_buffers = 0;              // their records end at the first one that is broken
};

}  // namespace ftax::cupti
