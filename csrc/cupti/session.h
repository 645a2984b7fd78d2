// One collection of activity records. CUPTI's state is one per process, so at most one session is
// open at a time, and it leaves CUPTI as torch.profiler expects to find it. A session never
// subscribes. torch.profiler keeps the only subscription from its first use until the process ends,
// although the activity interface needs none.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <vector>

#include "cupti/activities.h"
#include "cupti/library.h"

namespace ftax::cupti {

struct Collection {
  Activities activities;
  uint64_t dropped_records = 0;  // those that found no room in a buffer
  int buffers = 0;
  int foreign_buffers = 0;  // another client's, that came to us since the session began
};

class Session {
 public:
  // Collects records of `kinds` from now on. Throws UnavailableError if another session is open,
  // another profiler is attached, or CUPTI refuses.
  Session(const Library& library, const std::vector<CUpti_ActivityKind>& kinds);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // All records since the last call. Work that the device has not finished comes without times, so
  // synchronise first.
  [[nodiscard]] Collection collect();

  // Ends the collecting; what was recorded can still be collected.
  void stop();

 private:
  void start(const std::vector<CUpti_ActivityKind>& kinds);
  void close() noexcept;

  const Library& library_;
  std::vector<CUpti_ActivityKind> enabled_;
  bool registered_ = false;
};

// Takes CUPTI out of the process: what it has hooked into the driver slows every later launch, in
// which a trace is long over. Returns false, having done nothing, where a session is open or
// another client is subscribed (torch.profiler, from its first use on), which this would cut off. A
// later session attaches it again. Nothing may be in flight on any device.
bool detach(const Library& library);

}  // namespace ftax::cupti
