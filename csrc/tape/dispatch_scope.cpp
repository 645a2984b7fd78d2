// The one file that knows which dispatch keys record. Both are reserved by torch for others (its
// own tests, and its C++ fake tensors) and may go away: python/ftax/runtimes/tape/recording.py
// probes them and falls back to a TorchDispatchMode. A handler is registered only while recording,
// never at load time, so that importing ftax leaves torch's dispatch tables as they were.
//
// TESTING_ONLY_GenericMode sits above autograd, autocast and composite decomposition, so it sees
// calls as the model made them. Fake sits below them: it sees what they make of a call, and what
// the backward pass calls.
#include "tape/dispatch_scope.h"

#include <atomic>

#include "core/error.h"

namespace ftax {
namespace {

constexpr auto kAbove = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr auto kBelow = c10::DispatchKey::Fake;

// Of the process: autograd's engine runs a backward pass on threads of its own, to which it hands
// the keys that the calling thread has included.
std::atomic<Recorder*> active = nullptr;

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
  Recorder* recorder = active.load();
  if (recorder != nullptr && recorder->level() != Level::kAboveAutograd && is_profiling(op)) {
    recorder = nullptr;
  }
  auto pending = recorder != nullptr ? recorder->begin(op, *stack, hidden) : std::nullopt;
  if constexpr (key == kAbove) {
    op.callBoxed(*stack);
  } else {  // what stands above has done its part
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key), stack);
  }
  if (recorder != nullptr) recorder->end(std::move(pending), *stack);
}

c10::DispatchKey choose_key(Level level) {
  return level == Level::kBelowAutograd ? kBelow : kAbove;
}

c10::RegistrationHandleRAII register_handler(Recorder& recorder) {
  Recorder* nobody = nullptr;
  if (!active.compare_exchange_strong(nobody, &recorder)) {
    throw UnavailableError(
        "a recording is already under way, here or in another thread; finish it first");
  }
  const c10::DispatchKey key = choose_key(recorder.level());
  try {
    return c10::Dispatcher::singleton().registerFallback(
        key,
        key == kAbove ? c10::KernelFunction::makeFromBoxedFunction<&record_call<kAbove>>()
                      : c10::KernelFunction::makeFromBoxedFunction<&record_call<kBelow>>(),
        "ftax tape recorder");
  } catch (const c10::Error& error) {
    active = nullptr;
    throw UnavailableError("operator calls cannot be observed through torch's dispatcher (" +
                           std::string(error.what_without_backtrace()) +
                           "); record with observer='python'");
  }
}

}  // namespace

DispatchScope::DispatchScope(Recorder& recorder)
    : registration_(register_handler(recorder)), include_(choose_key(recorder.level())) {}

DispatchScope::~DispatchScope() { active = nullptr; }

}  // namespace ftax
