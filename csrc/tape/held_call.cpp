#include "tape/held_call.h"

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace ftax {

HeldCall::HeldCall(const Call& call, std::vector<c10::IValue> arguments)
    : op_(call.op.value()), arguments_(std::move(arguments)), overlaps_(call.overlaps) {}

void HeldCall::run() {
  std::vector<c10::IValue> stack = arguments_;
  op_.callBoxed(stack);
  work_ = find_work(stack);
  if (!overlaps_) wait();
}

void HeldCall::wait() {
  const c10::IValue work = std::exchange(work_, c10::IValue());
  if (!work.isNone()) wait_for(work);
}

c10::IValue find_work(const std::vector<c10::IValue>& results) {
  if (results.empty()) return {};
  const c10::IValue& last = results.back();
  return last.isObject() && last.isCustomClass() ? last : c10::IValue();
}

void wait_for(const c10::IValue& work) { work.toCustomClass<c10d::Work>()->wait(); }

}  // namespace ftax
