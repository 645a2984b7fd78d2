// Observes every operator call of the thread and reports it to a Recorder.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tape/recorder.h"

namespace ftax {

// While it lives, operator calls of this thread go to the recorder. One at a time in a process.
// Throws UnavailableError if this torch does not let the key be used.
class GenericModeScope {
 public:
  explicit GenericModeScope(Recorder& recorder);
  ~GenericModeScope();
  GenericModeScope(const GenericModeScope&) = delete;
  GenericModeScope& operator=(const GenericModeScope&) = delete;

 private:
  c10::RegistrationHandleRAII registration_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace ftax
