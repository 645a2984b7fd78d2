// Has the operators that one thread calls draw from generators of a recording: what a recording
// runs several times would otherwise take its numbers from a generator that other threads use as
// well.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <vector>

namespace ftax {

// While it lives, operators that this thread calls without a generator, and those of its backward
// passes, get the one of their device. Throws UnavailableError where torch does not let operators
// be met so.
class OwnGenerators {
 public:
  explicit OwnGenerators(std::vector<at::Generator> generators);
  OwnGenerators(const OwnGenerators&) = delete;
  OwnGenerators& operator=(const OwnGenerators&) = delete;

  // Whether a call was given this generator by such a scope: its own arguments have none.
  [[nodiscard]] static bool has(const at::Generator& generator);

  // Its dispatch key, which Python's modes exclude for what they call.
  static constexpr auto kKey = c10::DispatchKey::DeferredInit;

 private:
  c10::DebugInfoGuard carried_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace ftax
