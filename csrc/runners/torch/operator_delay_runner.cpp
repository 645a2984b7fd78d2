// Intercepts through a second test-only dispatch key, below the recorder's. Inside the call the key
// is excluded, so that operators which an operator is made of are not delayed again: the delay is
// once per call that the model makes, which is what a tape counts.
#include "runners/torch/operator_delay_runner.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>

#include "core/clock.h"
#include "core/error.h"
#include "tape/key_handler.h"

namespace ftax {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

thread_local int64_t active_delay_ns = 0;

void delay_call(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  for (const int64_t end = now_ns() + active_delay_ns; now_ns() < end;) {
  }
  op.callBoxed(*stack);
}

// See Note [Threads that outlive a scope].
struct Carried final : c10::DebugInfoBase {
  KeyHandler handler{kKey, c10::KernelFunction::makeFromBoxedFunction<&delay_call>(), "ftax delay"};
};

class DelayScope final : public Runner::Scope {
 public:
  DelayScope(std::unique_ptr<Runner::Scope> inner, int64_t delay_ns)
      : inner_(std::move(inner)),
        carried_(c10::DebugInfoKind::PRODUCER_INFO, std::make_shared<Carried>()),
        include_(kKey) {
    active_delay_ns = delay_ns;
  }
  ~DelayScope() override { active_delay_ns = 0; }

 private:
  std::unique_ptr<Runner::Scope> inner_;  // first in, last out: it may hold the GIL
  c10::DebugInfoGuard carried_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace

OperatorDelayRunner::OperatorDelayRunner(std::shared_ptr<Runner> inner, int64_t delay_ns)
    : RunnerWrapper(std::move(inner)), delay_ns_(delay_ns) {
  if (delay_ns < 0) {
    throw InvalidArgumentError("the delay is " + std::to_string(delay_ns) +
                               " ns; a delay cannot be negative");
  }
}

std::unique_ptr<Runner::Scope> OperatorDelayRunner::enter() {
  return std::make_unique<DelayScope>(RunnerWrapper::enter(), delay_ns_);
}

}  // namespace ftax
