#include "tape/held_call.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>

namespace ftax {

HeldCall::HeldCall(const Call& call, std::vector<c10::IValue> arguments)
    : op_(call.op.value()), arguments_(std::move(arguments)), overlaps_(call.overlaps) {}

void HeldCall::run() {
  const c10::InferenceMode inference;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  std::vector<c10::IValue> stack = arguments_;
  op_.callBoxed(stack);
  work_ = find_work(stack);
  if (!overlaps_) wait();
}

void HeldCall::wait() {
  if (const Work work = std::exchange(work_, Work())) work->wait();
}

Work find_work(const std::vector<c10::IValue>& results) {
  if (results.empty()) return {};
  const c10::IValue& last = results.back();
  if (!last.isObject() || !last.isCustomClass()) return {};
  return last.toCustomClass<c10d::Work>();
}

}  // namespace ftax
