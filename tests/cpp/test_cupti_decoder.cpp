// The decoder on records made by hand, in buffers that are walked by hand. Each buffer holds whole
// structs, so that a field read at the wrong place shows.
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "cupti/decoder.h"

namespace ftax::cupti {
namespace {

constexpr size_t kStride = 512;

CUptiResult next_record(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) {
  uint8_t* next = *record == nullptr ? buffer : reinterpret_cast<uint8_t*>(*record) + kStride;
  if (next >= buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  const auto found = reinterpret_cast<CUpti_Activity*>(next);
  if (found->kind == CUPTI_ACTIVITY_KIND_INVALID) return CUPTI_ERROR_INVALID_KIND;
  *record = found;
  return CUPTI_SUCCESS;
}

CUptiResult callback_name(CUpti_CallbackDomain domain, uint32_t id, const char** name) {
  if (id == 1) {
    *name = domain == CUPTI_CB_DOMAIN_RUNTIME_API ? "cudaMemcpyAsync_v3020" : "cuMemcpyDtoH_v2";
  } else if (id == 2) {
    *name = "cudaMemcpyAsync_ptsz_v7000";
  } else if (id == 3) {
    *name = "cudaGraphLaunch";
  } else {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return CUPTI_SUCCESS;
}

class Buffer {
 public:
  template <typename Record>
  void add(const Record& record) {
    static_assert(sizeof record <= kStride);
    blocks_.emplace_back();
    std::memcpy(blocks_.back().bytes, &record, sizeof record);
  }

  Activities decode() {
    Activities activities;
    decode_buffer({next_record, callback_name}, blocks_.data()->bytes, blocks_.size() * kStride,
                  activities);
    return activities;
  }

 private:
  struct alignas(8) Block {
    uint8_t bytes[kStride] = {};
  };
  std::vector<Block> blocks_;
};

template <typename Record>
Record make_record(CUpti_ActivityKind kind) {
  Record record{};
  record.kind = kind;
  return record;
}

template <typename Record>
void fill_origin(Record& record) {
  record.deviceId = 3;
  record.contextId = 91;
  record.streamId = 7;
  record.correlationId = 1234;
  record.graphId = 5;
  record.graphNodeId = 0x1'0000'0006;
}

void check_origin(const Origin& origin) {
  CHECK(origin.device_id == 3);
  CHECK(origin.stream_id == 7);
  CHECK(origin.correlation_id == 1234);
  CHECK(origin.graph_id == 5);
  CHECK(origin.graph_node_id == 0x1'0000'0006);
}

template <typename Record>
void check_kernel() {
  auto record = make_record<Record>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  fill_origin(record);
  record.name = "_Z4axpyPf";
  record.start = 5'000'000'000;  // needs more than 32 bits
  record.end = 5'000'002'500;
  record.gridX = 132;
  record.gridY = 2;
  record.gridZ = 3;
  record.blockX = 256;
  record.blockY = 4;
  record.blockZ = 1;
  record.staticSharedMemory = 48;
  record.dynamicSharedMemory = 65536;
  record.registersPerThread = 168;
  Buffer buffer;
  buffer.add(record);
  const Activities activities = buffer.decode();
  CHECK(activities.kernels.size() == 1);
  const KernelActivity& kernel = activities.kernels.at(0);
  CHECK(kernel.name == "_Z4axpyPf");
  CHECK(kernel.start_ns == 5'000'000'000);
  CHECK(kernel.end_ns == 5'000'002'500);
  CHECK((kernel.grid == std::array<int32_t, 3>{132, 2, 3}));
  CHECK((kernel.block == std::array<int32_t, 3>{256, 4, 1}));
  CHECK(kernel.static_shared_bytes == 48);
  CHECK(kernel.dynamic_shared_bytes == 65536);
  CHECK(kernel.registers_per_thread == 168);
  check_origin(kernel.origin);
  CHECK(activities.unreadable_buffers == 0);
}

TEST(a_kernel_is_read_from_the_oldest_record) { check_kernel<CUpti_ActivityKernel7>(); }

#if CUPTI_API_VERSION >= 130000
TEST(a_kernel_is_read_from_the_newest_record) { check_kernel<CUpti_ActivityKernel10>(); }
#endif

TEST(a_kernel_without_a_name_is_not_followed) {
  Buffer buffer;
  buffer.add(make_record<CUpti_ActivityKernel7>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  CHECK(buffer.decode().kernels.at(0).name.empty());
}

TEST(each_direction_of_a_copy_has_its_name) {
  const std::pair<int, const char*> directions[] = {{CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, "HtoD"},
                                                    {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, "DtoH"},
                                                    {CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, "DtoD"},
                                                    {CUPTI_ACTIVITY_MEMCPY_KIND_PTOP, "PtoP"},
                                                    {CUPTI_ACTIVITY_MEMCPY_KIND_HTOA, "other"}};
  Buffer buffer;
  for (const auto& [kind, name] : directions) {
    auto record = make_record<CUpti_ActivityMemcpy5>(CUPTI_ACTIVITY_KIND_MEMCPY);
    fill_origin(record);
    record.copyKind = static_cast<uint8_t>(kind);
    record.bytes = 1 << 20;
    record.start = 10;
    record.end = 30;
    buffer.add(record);
  }
  const Activities activities = buffer.decode();
  CHECK(activities.memcpys.size() == std::size(directions));
  for (size_t i = 0; i < activities.memcpys.size(); ++i) {
    const MemcpyActivity& copy = activities.memcpys[i];
    CHECK(copy.copy_kind == directions[i].second);
    CHECK(copy.bytes == 1 << 20);
    CHECK(copy.start_ns == 10);
    CHECK(copy.end_ns == 30);
    check_origin(copy.origin);
  }
}

TEST(a_copy_between_devices_has_a_record_of_its_own) {
  auto record = make_record<CUpti_ActivityMemcpyPtoP4>(CUPTI_ACTIVITY_KIND_MEMCPY2);
  fill_origin(record);
  record.srcDeviceId = 80;
  record.dstDeviceId = 81;
  record.bytes = 12;
  record.start = 1;
  record.end = 2;
  Buffer buffer;
  buffer.add(record);
  const MemcpyActivity copy = buffer.decode().memcpys.at(0);
  CHECK(copy.copy_kind == "PtoP");
  CHECK(copy.bytes == 12);
  CHECK(copy.start_ns == 1 && copy.end_ns == 2);
  check_origin(copy.origin);
}

TEST(a_memset_is_read) {
  auto record = make_record<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
  fill_origin(record);
  record.value = 255;
  record.bytes = 64;
  record.start = 7;
  record.end = 9;
  Buffer buffer;
  buffer.add(record);
  const MemsetActivity memset = buffer.decode().memsets.at(0);
  CHECK(memset.value == 255);
  CHECK(memset.bytes == 64);
  CHECK(memset.start_ns == 7 && memset.end_ns == 9);
  check_origin(memset.origin);
}

ApiActivity decode_call(CUpti_ActivityKind kind, uint32_t id) {
  auto record = make_record<CUpti_ActivityAPI>(kind);
  record.cbid = id;
  record.start = 100;
  record.end = 175;
  record.correlationId = 42;
  record.processId = 1;
  record.threadId = 2;
  Buffer buffer;
  buffer.add(record);
  return buffer.decode().api_calls.at(0);
}

TEST(a_call_is_read) {
  const ApiActivity call = decode_call(CUPTI_ACTIVITY_KIND_RUNTIME, 3);
  CHECK(call.domain == "runtime");
  CHECK(call.name == "cudaGraphLaunch");
  CHECK(call.start_ns == 100 && call.end_ns == 175);
  CHECK(call.correlation_id == 42);
  CHECK(call.thread_id == 2);
}

TEST(the_name_of_a_call_is_the_one_in_the_program) {
  CHECK(decode_call(CUPTI_ACTIVITY_KIND_RUNTIME, 1).name == "cudaMemcpyAsync");
  CHECK(decode_call(CUPTI_ACTIVITY_KIND_RUNTIME, 2).name == "cudaMemcpyAsync_ptsz");
  CHECK(decode_call(CUPTI_ACTIVITY_KIND_DRIVER, 1).name == "cuMemcpyDtoH_v2");
  CHECK(decode_call(CUPTI_ACTIVITY_KIND_DRIVER, 1).domain == "driver");
  CHECK(decode_call(CUPTI_ACTIVITY_KIND_DRIVER, 99).name == "callback 99");
}

TEST(an_overhead_has_a_kind_in_words) {
  auto record = make_record<CUpti_ActivityOverhead>(CUPTI_ACTIVITY_KIND_OVERHEAD);
  record.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE;
  record.start = 1000;
  record.end = 3000;
  Buffer buffer;
  buffer.add(record);
  record.overheadKind = static_cast<CUpti_ActivityOverheadKind>(77 << 16);
  buffer.add(record);
  const Activities activities = buffer.decode();
  CHECK(activities.overheads.at(0).overhead_kind == "resource");
  CHECK(activities.overheads.at(0).start_ns == 1000);
  CHECK(activities.overheads.at(0).end_ns == 3000);
  CHECK(activities.overheads.at(1).overhead_kind == "kind " + std::to_string(77 << 16));
}

TEST(every_record_is_counted_by_its_kind) {
  Buffer buffer;
  buffer.add(make_record<CUpti_ActivityKernel7>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  buffer.add(make_record<CUpti_Activity>(static_cast<CUpti_ActivityKind>(4711)));
  buffer.add(make_record<CUpti_ActivityKernel7>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  buffer.add(make_record<CUpti_Activity>(CUPTI_ACTIVITY_KIND_MARKER));
  const Activities activities = buffer.decode();
  CHECK(activities.kernels.size() == 2);
  CHECK((activities.records_by_kind ==
         std::map<int32_t, int64_t>{{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 2},
                                    {CUPTI_ACTIVITY_KIND_MARKER, 1},
                                    {4711, 1}}));
}

TEST(a_broken_record_ends_its_buffer_and_is_counted) {
  Buffer buffer;
  buffer.add(make_record<CUpti_ActivityKernel7>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  buffer.add(make_record<CUpti_Activity>(CUPTI_ACTIVITY_KIND_INVALID));
  buffer.add(make_record<CUpti_ActivityKernel7>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  const Activities activities = buffer.decode();
  CHECK(activities.kernels.size() == 1);
  CHECK(activities.unreadable_buffers == 1);
}

TEST(an_empty_buffer_is_not_read) {
  Activities activities;
  decode_buffer({nullptr, nullptr}, nullptr, 0, activities);
  CHECK(activities.records_by_kind.empty());
  CHECK(activities.unreadable_buffers == 0);
}

}  // namespace
}  // namespace ftax::cupti
