// The one file that knows which dispatch key records. TESTING_ONLY_GenericMode sits above autograd,
// autocast and composite decomposition, so it sees calls as the model made them. It is reserved for
// torch's own tests and may go away: python/ftax/runtimes/tape/recording.py probes it and falls
// back to a TorchDispatchMode. The handler is registered only while recording, never at load time,
// so that importing ftax leaves torch's dispatch tables as they were.
#include "tape/generic_mode.h"

#include "core/error.h"

namespace ftax {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local Recorder* active = nullptr;

void record_call(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  // torch.tensor excludes Python's keys while it makes and converts the memory that it fills, so a
  // TorchDispatchMode sees only the lift_fresh that follows.
  const bool hidden = c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python);
  auto pending = active != nullptr ? active->begin(op, *stack, hidden) : std::nullopt;
  op.callBoxed(*stack);
  if (active != nullptr) active->end(std::move(pending), *stack);
}

c10::RegistrationHandleRAII register_handler() {
  if (active != nullptr) {
    throw UnavailableError("a recording is already under way on this thread; finish it first");
  }
  try {
    return c10::Dispatcher::singleton().registerFallback(
        kKey, c10::KernelFunction::makeFromBoxedFunction<&record_call>(), "ftax tape recorder");
  } catch (const c10::Error& error) {
    throw UnavailableError("operator calls cannot be observed through torch's dispatcher (" +
                           std::string(error.what_without_backtrace()) +
                           "); if another thread is recording, wait for it, otherwise record with "
                           "observer='python'");
  }
}

}  // namespace

GenericModeScope::GenericModeScope(Recorder& recorder)
    : registration_(register_handler()), include_(kKey) {
  active = &recorder;
}

GenericModeScope::~GenericModeScope() { active = nullptr; }

}  // namespace ftax
