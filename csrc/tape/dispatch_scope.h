// Observes every operator call of the thread, and of the threads that run its backward pass, and
// reports it to a Recorder.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>

#include "tape/recorder.h"

namespace ftax {

// While it lives, operator calls go to the recorder, at the level that it records. One at a time in
// a process. At its end the recorder is closed; calls that other threads are still in go on, see
// Note [Threads that outlive a scope]. Throws UnavailableError if this torch does not let the key
// be used.
class DispatchScope {
 public:
  explicit DispatchScope(std::shared_ptr<Recorder> recorder);
  ~DispatchScope();
  DispatchScope(const DispatchScope&) = delete;
  DispatchScope& operator=(const DispatchScope&) = delete;

 private:
  std::shared_ptr<Recorder> recorder_;
  c10::DebugInfoGuard carried_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

// A call that was observed: what this thread does meanwhile, or has other threads do, is the
// operator's. Also where a Python mode observes, and no key is included.
class InsideCall {
 public:
  explicit InsideCall(Level level);
  [[nodiscard]] static bool is_here(Level level);

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

}  // namespace ftax
