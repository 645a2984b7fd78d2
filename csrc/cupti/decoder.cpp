// Reads each record through the oldest struct that has all the fields wanted here, not the newest
// one: CUPTI only ever appends to a record, so the old struct is a prefix of what
// any library since CUDA 11.6 writes, whichever toolkit this was compiled with.
#include "cupti/decoder.h"

#include <iterator>
#include <string>
#include <string_view>

namespace ftax::cupti {
namespace {

using KernelRecord = CUpti_ActivityKernel7;
using MemcpyRecord = CUpti_ActivityMemcpy5;
using PeerMemcpyRecord = CUpti_ActivityMemcpyPtoP3;
using MemsetRecord = CUpti_ActivityMemset3;
using ApiRecord = CUpti_ActivityAPI;
using OverheadRecord = CUpti_ActivityOverhead;

template <typename Record>
const Record& view(const CUpti_Activity* record) {
  return *reinterpret_cast<const Record*>(record);
}

int64_t to_ns(uint64_t timestamp) { return static_cast<int64_t>(timestamp); }

template <typename Record>
Origin read_origin(const Record& record) {
  return {.device_id = record.deviceId,
          .stream_id = record.streamId,
          .correlation_id = record.correlationId,
          .graph_id = record.graphId,
          .graph_node_id = record.graphNodeId};
}

const char* name_copy_kind(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "PtoP";
    default:
      return "other";
  }
}

// By number, because the header of an older toolkit lacks the later names. CUPTI's own kinds are
// multiples of 65536.
std::string name_overhead_kind(int kind) {
  constexpr int kUnit = 65536;
  constexpr const char* kNames[] = {"unknown",
                                    "buffer flush",
                                    "instrumentation",
                                    "resource",
                                    "module loading",
                                    "lazy function loading",
                                    "command buffer full",
                                    "buffer request",
                                    "managed memory set-up"};
  if (kind == CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER) return "driver compiler";
  const bool is_known = kind >= 0 && kind % kUnit == 0 && kind / kUnit < std::ssize(kNames);
  return is_known ? kNames[kind / kUnit] : "kind " + std::to_string(kind);
}

// CUPTI appends to a runtime function the version of CUDA that its signature dates from:
// "cudaLaunchKernel_v7000". A driver function's "_v2" is part of its name.
std::string_view strip_version(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  const bool has_version =
      digits >= 2 && digits < name.size() && name[digits - 1] == 'v' && name[digits - 2] == '_';
  return has_version ? name.substr(0, digits - 2) : name;
}

std::string name_call(const RecordReader& reader, bool is_runtime, CUpti_CallbackId id) {
  const char* name = nullptr;
  const CUpti_CallbackDomain domain =
      is_runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
  if (reader.callback_name(domain, id, &name) != CUPTI_SUCCESS || name == nullptr) {
    return "callback " + std::to_string(id);
  }
  return std::string(is_runtime ? strip_version(name) : std::string_view(name));
}

KernelActivity decode_kernel(const KernelRecord& record) {
  return {.name = record.name == nullptr ? "" : record.name,
          .start_ns = to_ns(record.start),
          .end_ns = to_ns(record.end),
          .grid = {record.gridX, record.gridY, record.gridZ},
          .block = {record.blockX, record.blockY, record.blockZ},
          .static_shared_bytes = record.staticSharedMemory,
          .dynamic_shared_bytes = record.dynamicSharedMemory,
          .registers_per_thread = record.registersPerThread,
          .origin = read_origin(record)};
}

template <typename Record>
MemcpyActivity decode_memcpy(const Record& record, const char* copy_kind) {
  return {.copy_kind = copy_kind,
          .bytes = record.bytes,
          .start_ns = to_ns(record.start),
          .end_ns = to_ns(record.end),
          .origin = read_origin(record)};
}

MemsetActivity decode_memset(const MemsetRecord& record) {
  return {.value = record.value,
          .bytes = record.bytes,
          .start_ns = to_ns(record.start),
          .end_ns = to_ns(record.end),
          .origin = read_origin(record)};
}

ApiActivity decode_call(const RecordReader& reader, const ApiRecord& record) {
  const bool is_runtime = record.kind == CUPTI_ACTIVITY_KIND_RUNTIME;
  return {.domain = is_runtime ? "runtime" : "driver",
          .name = name_call(reader, is_runtime, record.cbid),
          .start_ns = to_ns(record.start),
          .end_ns = to_ns(record.end),
          .correlation_id = record.correlationId,
          .thread_id = record.threadId};
}

void decode_record(const RecordReader& reader, const CUpti_Activity* record,
                   Activities& activities) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      activities.kernels.push_back(decode_kernel(view<KernelRecord>(record)));
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = view<MemcpyRecord>(record);
      activities.memcpys.push_back(decode_memcpy(copy, name_copy_kind(copy.copyKind)));
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      activities.memcpys.push_back(decode_memcpy(view<PeerMemcpyRecord>(record), "PtoP"));
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      activities.memsets.push_back(decode_memset(view<MemsetRecord>(record)));
      break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      activities.api_calls.push_back(decode_call(reader, view<ApiRecord>(record)));
      break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
      const auto& overhead = view<OverheadRecord>(record);
      activities.overheads.push_back(
          {.overhead_kind = name_overhead_kind(static_cast<int>(overhead.overheadKind)),
           .start_ns = to_ns(overhead.start),
           .end_ns = to_ns(overhead.end)});
      break;
    }
    default:
      break;
  }
  ++activities.records_by_kind[static_cast<int32_t>(record->kind)];
}

}  // namespace

void decode_buffer(const RecordReader& reader, uint8_t* buffer, size_t valid_bytes,
                   Activities& activities) {
  if (valid_bytes == 0) return;
  CUpti_Activity* record = nullptr;
  CUptiResult result;
  while ((result = reader.next_record(buffer, valid_bytes, &record)) == CUPTI_SUCCESS) {
    decode_record(reader, record, activities);
  }
  if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) ++activities.unreadable_buffers;
}

}  // namespace ftax::cupti
