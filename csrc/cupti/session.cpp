// Callbacks, clock, kinds: registered in this order, given back in the reverse one. The clock comes
// before the kinds, because a record keeps the clock that was set when it was made; and after the
// callbacks, because these are what another profiler makes CUPTI refuse.
//
// Note [The clock]
// CUPTI stamps records with CLOCK_REALTIME unless told otherwise. torch.profiler tells it to use
// the time-stamp counter of the processor and never takes that back, so that a session after it
// gets cycles instead of ns. A session registers CLOCK_MONOTONIC, and at its end CLOCK_REALTIME:
// CUPTI does not accept a null pointer for "the default". torch.profiler registers its own at each
// start.
#include "cupti/session.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/error.h"
#include "cupti/buffers.h"
#include "cupti/decoder.h"

namespace ftax::cupti {
namespace {

std::atomic<bool> session_is_open{false};

BufferPool& pool() {
  static BufferPool* const instance = new BufferPool();  // see Note [Late buffers]
  return *instance;
}

void CUPTIAPI request_buffer(uint8_t** buffer, size_t* bytes, size_t* max_records) noexcept {
  *buffer = pool().lend();
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI complete_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t,
                              size_t valid_bytes) noexcept {
  pool().take_back(buffer, valid_bytes);
}

void CUPTIAPI ignore_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) noexcept {
}

uint64_t CUPTIAPI read_monotonic_clock() noexcept { return static_cast<uint64_t>(now_ns()); }

uint64_t CUPTIAPI read_realtime_clock() noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// A profiler that started this process said so in the environment. Asking CUPTI would not do: some
// of them let a second client in and then take its records.
void check_no_profiler_attached() {
  constexpr std::string_view kPrefixes[] = {
      "NSYS_PROFILING_SESSION_ID=", "CUDA_INJECTION64_PATH=", "NV_NSIGHT_INJECTION"};
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    for (const std::string_view prefix : kPrefixes) {
      if (!variable.starts_with(prefix) || variable.ends_with('=')) continue;
      throw UnavailableError("another profiler started this process (" + std::string(variable) +
                             "), and CUPTI serves one at a time: run without nsys or ncu");
    }
  }
}

std::string name_call(const char* function, CUpti_ActivityKind kind) {
  return std::string(function) + "(kind " + std::to_string(kind) + ")";
}

}  // namespace

Session::Session(const Library& library, const std::vector<CUpti_ActivityKind>& kinds)
    : library_(library) {
  check_no_profiler_attached();
  if (session_is_open.exchange(true)) {
    throw UnavailableError(
        "a trace is already running in this process, and CUPTI serves one at a time: wait for it");
  }
  try {
    start(kinds);
  } catch (...) {
    close();
    throw;
  }
}

Session::~Session() { close(); }

void Session::start(const std::vector<CUpti_ActivityKind>& kinds) {
  const Functions& cupti = library_.functions();
  pool().open();
  library_.check(cupti.cuptiActivityRegisterCallbacks(request_buffer, complete_buffer),
                 "cuptiActivityRegisterCallbacks");
  registered_ = true;
  library_.check(cupti.cuptiActivityRegisterTimestampCallback(read_monotonic_clock),
                 "cuptiActivityRegisterTimestampCallback");
  for (const CUpti_ActivityKind kind : kinds) {
    library_.check(cupti.cuptiActivityEnable(kind), name_call("cuptiActivityEnable", kind));
    enabled_.push_back(kind);
  }
}

Collection Session::collect() {
  const Functions& cupti = library_.functions();
  library_.check(cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                 "cuptiActivityFlushAll");
  const RecordReader reader{cupti.cuptiActivityGetNextRecord, cupti.cuptiGetCallbackName};
  Collection collection;
  for (auto filled = pool().find_filled(); filled.data != nullptr; filled = pool().find_filled()) {
    decode_buffer(reader, filled.data, filled.valid_bytes, collection.activities);
    pool().recycle(filled.data);
    ++collection.buffers;
  }
  size_t dropped = 0;  // since the last call
  library_.check(cupti.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped),
                 "cuptiActivityGetNumDroppedRecords");
  collection.dropped_records = dropped;
  collection.foreign_buffers = pool().count_foreign();
  return collection;
}

void Session::stop() {
  while (!enabled_.empty()) {
    const CUpti_ActivityKind kind = enabled_.back();
    enabled_.pop_back();  // before the check: close() must not try this one again
    library_.check(library_.functions().cuptiActivityDisable(kind),
                   name_call("cuptiActivityDisable", kind));
  }
}

// Results are not looked at: there is nobody to tell, and each step is worth trying.
void Session::close() noexcept {
  const Functions& cupti = library_.functions();
  for (const CUpti_ActivityKind kind : enabled_) cupti.cuptiActivityDisable(kind);
  enabled_.clear();
  if (registered_) {
    cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    cupti.cuptiActivityRegisterTimestampCallback(read_realtime_clock);
  }
  pool().close();
  session_is_open = false;
}

bool detach(const Library& library) {
  if (session_is_open.exchange(true)) return false;
  const Functions& cupti = library.functions();
  CUpti_SubscriberHandle mine = nullptr;
  // Whoever is refused knows that somebody else is in.
  const bool alone = cupti.cuptiSubscribe(&mine, ignore_callback, nullptr) == CUPTI_SUCCESS &&
                     cupti.cuptiUnsubscribe(mine) == CUPTI_SUCCESS;
  const bool detached = alone && cupti.cuptiFinalize() == CUPTI_SUCCESS;
  session_is_open = false;
  return detached;
}

}  // namespace ftax::cupti
