// A CUPTI without a GPU: kernels "run" the moment they are launched, one after the other. Records
// lie 512 bytes apart whatever their kind, more than any of them needs.
#include "fake_cupti.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

namespace {

constexpr size_t kStride = 512;

struct State {
  fake_cupti::Knobs knobs;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUpti_TimestampCallbackFunc clock = nullptr;
  std::set<int> enabled;
  std::vector<std::string> journal;
  uint8_t* buffer = nullptr;
  size_t capacity_bytes = 0;
  size_t used_bytes = 0;
  size_t dropped = 0;
  int flushes = 0;
  uint32_t correlation_id = 0;
  uint64_t device_free_ns = 0;  // when the last kernel ends
};

State state;
// A program launches in one thread, and is watched from another.
std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

template <typename Record>
void write(const Record& record) {
  static_assert(sizeof record <= kStride);
  if (state.buffer != nullptr && state.used_bytes + kStride > state.capacity_bytes) {
    fake_cupti::deliver();
  }
  if (state.buffer == nullptr && state.request != nullptr) {
    size_t max_records = 0;
    state.request(&state.buffer, &state.capacity_bytes, &max_records);
  }
  if (state.buffer == nullptr) {
    ++state.dropped;
    return;
  }
  std::memcpy(state.buffer + state.used_bytes, &record, sizeof record);
  state.used_bytes += kStride;
}

bool is_enabled(CUpti_ActivityKind kind) { return state.enabled.count(kind) != 0; }

void note(char what, CUpti_ActivityKind kind) {
  state.journal.emplace_back(1, what);
  state.journal.back() += std::to_string(kind);
}

uint64_t stamp(uint64_t time_ns) {
  if (state.knobs.lose_times) return 0;
  const bool is_wrong = state.flushes < state.knobs.wrong_clock_flushes;
  return is_wrong ? static_cast<uint64_t>(static_cast<double>(time_ns) * state.knobs.clock_factor)
                  : time_ns;
}

}  // namespace

namespace fake_cupti {

Knobs& knobs() { return state.knobs; }
void reset() { state = State(); }

uint64_t read_clock() {
  if (state.clock != nullptr) return state.clock();
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void launch(const char* name, int64_t duration_ns) {
  const Lock lock(mutex);
  ++state.correlation_id;
  const uint64_t called_ns = read_clock();
  const uint64_t start_ns = std::max(called_ns, state.device_free_ns);
  state.device_free_ns = start_ns + static_cast<uint64_t>(duration_ns);
  if (is_enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) {
    CUpti_ActivityKernel7 kernel{};
    kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    kernel.name = name;
    kernel.start = stamp(start_ns);
    kernel.end = stamp(state.device_free_ns);
    kernel.correlationId = state.correlation_id;
    if (state.knobs.drop_kernels) {
      ++state.dropped;
    } else {
      write(kernel);
    }
  }
  if (is_enabled(CUPTI_ACTIVITY_KIND_RUNTIME)) {
    CUpti_ActivityAPI call{};
    call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
    call.cbid = 211;
    call.start = called_ns;
    call.end = read_clock();
    call.correlationId = state.correlation_id;
    write(call);
  }
}

void put(CUpti_ActivityKind kind) {
  CUpti_Activity record{};
  record.kind = kind;
  write(record);
}

void deliver() {
  if (state.buffer == nullptr || state.complete == nullptr) return;
  state.complete(nullptr, 0, state.buffer, state.capacity_bytes, state.used_bytes);
  state.buffer = nullptr;
  state.used_bytes = 0;
}

void deliver_foreign() {
  static uint8_t foreign[kStride] = {};
  state.complete(nullptr, 0, foreign, sizeof foreign, sizeof foreign);
}

std::vector<int> enabled_kinds() { return {state.enabled.begin(), state.enabled.end()}; }
const std::vector<std::string>& journal() { return state.journal; }

}  // namespace fake_cupti

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = state.knobs.version;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
              ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
              : "CUPTI_ERROR_OF_A_FAKE";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain, uint32_t id, const char** name) {
  if (id != 211) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = "cudaLaunchKernel_v7000";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  if (state.knobs.register_result != CUPTI_SUCCESS) return state.knobs.register_result;
  state.request = request;
  state.complete = complete;
  state.journal.emplace_back("callbacks");
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  if (clock == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (state.knobs.clock_result != CUPTI_SUCCESS) return state.knobs.clock_result;
  state.clock = clock;
  state.journal.emplace_back("clock");
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const Lock lock(mutex);
  if (kind == state.knobs.refused_kind) return state.knobs.enable_result;
  state.enabled.insert(kind);
  note('+', kind);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const Lock lock(mutex);
  state.enabled.erase(kind);
  note('-', kind);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) {
  const Lock lock(mutex);
  if (id != 211) return CUPTI_SUCCESS;  // no other is called
  if (enable != 0) {
    state.enabled.insert(CUPTI_ACTIVITY_KIND_RUNTIME);
  } else {
    state.enabled.erase(CUPTI_ACTIVITY_KIND_RUNTIME);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId, uint8_t) { return CUPTI_SUCCESS; }

CUptiResult cuptiActivityFlushAll(uint32_t) {
  const Lock lock(mutex);
  if (state.knobs.flush_result != CUPTI_SUCCESS) return state.knobs.flush_result;
  ++state.flushes;
  state.journal.emplace_back("flush");
  if (!state.knobs.keep_buffers) fake_cupti::deliver();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes,
                                       CUpti_Activity** record) {
  uint8_t* next = *record == nullptr ? buffer : reinterpret_cast<uint8_t*>(*record) + kStride;
  if (next + kStride > buffer + valid_bytes) {
    return state.knobs.break_buffers ? CUPTI_ERROR_INVALID_KIND : CUPTI_ERROR_MAX_LIMIT_REACHED;
  }
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  *dropped = state.dropped;
  state.dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  if (state.knobs.other_subscriber) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  *subscriber = nullptr;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) { return CUPTI_SUCCESS; }

// All that was registered goes, as in a process that never had a session.
CUptiResult cuptiFinalize() {
  state.request = nullptr;
  state.complete = nullptr;
  state.clock = nullptr;
  state.enabled.clear();
  state.journal.emplace_back("finalize");
  return CUPTI_SUCCESS;
}

}  // extern "C"
