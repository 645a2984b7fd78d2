// The one file that knows which dispatch keys record. Both are reserved by torch for others (its
// own tests, and its C++ fake tensors) and may go away: python/ftax/tape/recording.py
// probes them and falls back to a TorchDispatchMode. A handler is registered while recording,
// and as long as a thread carries the key, never at load time, so that importing ftax leaves
// torch's dispatch tables as they were.
//
// TESTING_ONLY_GenericMode sits above autograd, autocast and composite decomposition, so it sees
// calls as the model made them. Fake sits below them: it sees what they make of a call, and what
// the backward pass calls.
#include "tape/dispatch_scope.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <utility>

#include "core/error.h"
#include "tape/key_handler.h"

namespace ftax {
namespace {

constexpr auto kAbove = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr auto kBelow = c10::DispatchKey::Fake;

std::atomic<bool> is_recording = false;  // anywhere in the process

// See Note [Threads that outlive a scope].
struct Carried final : c10::DebugInfoBase {
  explicit Carried(std::shared_ptr<Recorder> recorder);

  KeyHandler handler;
  std::shared_ptr<Recorder> recorder;
};

// Null for a thread that has the key from elsewhere.
std::shared_ptr<Recorder> find_recorder() {
  const auto* const carried =
      dynamic_cast<const Carried*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO));
  return carried != nullptr ? carried->recorder : nullptr;
}

// An optimizer marks its step for torch's profiler.
bool is_profiling(const c10::OperatorHandle& op) {
  return op.operator_name().getNamespace() == "profiler";
}

template <c10::DispatchKey key>
void record_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(key);
  // torch.tensor excludes Python's keys while it makes and converts the memory that it fills, so a
  // TorchDispatchMode sees only the lift_fresh that follows.
  const bool hidden = c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python);
  std::shared_ptr<Recorder> recorder = find_recorder();
  if (recorder != nullptr && recorder->level() != Level::kAboveAutograd && is_profiling(op)) {
    recorder = nullptr;
  }
  auto pending = recorder != nullptr ? recorder->begin(op, *stack, hidden) : std::nullopt;
  try {
    if constexpr (key == kAbove) {
      op.callBoxed(*stack);
    } else {  // what stands above has done its part
      op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key), stack);
    }
  } catch (...) {
    if (recorder != nullptr) recorder->raised();
    throw;
  }
  if (recorder != nullptr) recorder->end(std::move(pending), *stack);
}

c10::DispatchKey choose_key(Level level) {
  return level == Level::kBelowAutograd ? kBelow : kAbove;
}

c10::KernelFunction choose_handler(Level level) {
  return choose_key(level) == kAbove
             ? c10::KernelFunction::makeFromBoxedFunction<&record_call<kAbove>>()
             : c10::KernelFunction::makeFromBoxedFunction<&record_call<kBelow>>();
}

Carried::Carried(std::shared_ptr<Recorder> to)
    : handler(choose_key(to->level()), choose_handler(to->level()), "ftax tape recorder"),
      recorder(std::move(to)) {}

std::shared_ptr<Carried> start_recording(std::shared_ptr<Recorder> recorder) {
  if (is_recording.exchange(true)) {
    throw UnavailableError(
        "a recording is already under way, here or in another thread; finish it first");
  }
  try {
    return std::make_shared<Carried>(std::move(recorder));
  } catch (const c10::Error& error) {
    is_recording = false;
    throw UnavailableError("operator calls cannot be observed through torch's dispatcher (" +
                           std::string(error.what_without_backtrace()) +
                           "); record with observer='python'");
  }
}

}  // namespace

DispatchScope::DispatchScope(std::shared_ptr<Recorder> recorder)
    : recorder_(std::move(recorder)),
      carried_(c10::DebugInfoKind::TEST_INFO, start_recording(recorder_)),
      include_(choose_key(recorder_->level())) {}

DispatchScope::~DispatchScope() {
  recorder_->close();
  is_recording = false;
}

InsideCall::InsideCall(Level level) : exclude_(choose_key(level)) {}

bool InsideCall::is_here(Level level) {
  return c10::impl::tls_is_dispatch_key_excluded(choose_key(level));
}

}  // namespace ftax
