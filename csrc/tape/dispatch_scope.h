// Observes every operator call of the thread, and of the threads that run its backward pass, and
// reports it to a Recorder.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

#include "tape/recorder.h"

namespace ftax {

// While it lives, operator calls go to the recorder, at the level that it records. One at a time in
// a process. Throws UnavailableError if this torch does not let the key be used.
class DispatchScope {
 public:
  explicit DispatchScope(Recorder& recorder);
  ~DispatchScope();
  DispatchScope(const DispatchScope&) = delete;
  DispatchScope& operator=(const DispatchScope&) = delete;

 private:
  c10::RegistrationHandleRAII registration_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace ftax
