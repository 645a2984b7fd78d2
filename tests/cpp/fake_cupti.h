// The knobs of a CUPTI without a GPU: what tests tell it to do, and what they ask it. It is a
// shared library that exports CUPTI's own functions, opened by ftax as any CUPTI, and linked by the
// tests.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fake_cupti {

// Faults. Each is a property of CUPTI from then on, until reset().
struct Knobs {
  uint32_t version = 130000;
  CUptiResult register_result = CUPTI_SUCCESS;  // of cuptiActivityRegisterCallbacks
  CUptiResult clock_result = CUPTI_SUCCESS;     // of cuptiActivityRegisterTimestampCallback
  CUptiResult enable_result = CUPTI_SUCCESS;    // of cuptiActivityEnable(refused_kind)
  CUpti_ActivityKind refused_kind = CUPTI_ACTIVITY_KIND_INVALID;
  CUptiResult flush_result = CUPTI_SUCCESS;
  bool drop_kernels = false;          // as if there were no buffer for them
  bool lose_times = false;            // kernels come with times of 0
  double clock_factor = 1;            // what kernels are stamped with, times this...
  int wrong_clock_flushes = 1 << 30;  // ...until so many flushes have happened
  bool break_buffers = false;         // the record after the last one is reported as invalid
  bool keep_buffers = false;          // a flush returns nothing
  bool other_subscriber = false;      // another client has the only subscription
};

Knobs& knobs();
// All knobs and all state, as in a new process; a buffer that is out is forgotten.
void reset();

// A kernel, and the runtime call that launched it: recorded for the kinds that are enabled.
void launch(const char* name, int64_t duration_ns);
// A record of a kind, whether enabled or not, without contents.
void put(CUpti_ActivityKind kind);
// Returns the buffer in use, as CUPTI may at any time.
void deliver();
// Returns a buffer that was never requested.
void deliver_foreign();

std::vector<int> enabled_kinds();
// What the library was asked to do, in order: "callbacks", "clock", "+10" (kind 10 enabled), "-10",
// "flush", "finalize".
const std::vector<std::string>& journal();
// The time that the clock in force tells.
uint64_t read_clock();

}  // namespace fake_cupti
