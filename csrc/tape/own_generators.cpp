// DeferredInit stands above autograd, is reserved for a library outside of torch, and is in no
// thread's set of keys but in that of this scope: other threads do not meet the handlers. Composite
// operators pass it again with what they are made of, so `randn`, which takes no generator, is met
// as `normal_`, which does.
#include "tape/own_generators.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"
#include "tape/key_handler.h"

namespace ftax {
namespace {

KeyHandler::Handles register_handlers();

// See Note [Threads that outlive a scope].
struct Carried final : c10::DebugInfoBase {
  explicit Carried(std::vector<at::Generator> own) : generators(std::move(own)) {}

  KeyHandler handler{OwnGenerators::kKey, register_handlers};
  const std::vector<at::Generator> generators;
};

const Carried* find_carried() {
  return dynamic_cast<const Carried*>(
      c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO_2));
}

bool takes_generator(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.real_type();
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  const auto* const optional = type->castRaw<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

c10::Device find_device(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device();
    if (value.isDevice()) return value.toDevice();
  }
  return c10::kCPU;
}

void draw_from_own(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) {
  const Carried* const carried = find_carried();
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; carried != nullptr && i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (!value.isNone() || !takes_generator(arguments[i])) continue;
    const c10::Device device = find_device(c10::ArrayRef(*stack).slice(first));
    const auto own = std::ranges::find_if(carried->generators, [&](const at::Generator& generator) {
      return generator.device().type() == device.type() &&
             (device.is_cpu() || generator.device() == device);
    });
    if (own != carried->generators.end()) value = *own;
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, OwnGenerators::kKey), stack);
}

KeyHandler::Handles register_handlers() {
  KeyHandler::Handles handles;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  handles.push_back(dispatcher.registerFallback(
      OwnGenerators::kKey, c10::KernelFunction::makeFallthrough(), "ftax own generators"));
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || !std::ranges::any_of(op->schema().arguments(), takes_generator)) {
      continue;
    }
    handles.push_back(dispatcher.registerImpl(
        name, OwnGenerators::kKey, c10::KernelFunction::makeFromBoxedFunction<&draw_from_own>(),
        std::nullopt, nullptr, "ftax own generators"));
  }
  return handles;
}

std::shared_ptr<Carried> make_carried(std::vector<at::Generator> generators) {
  try {
    return std::make_shared<Carried>(std::move(generators));
  } catch (const c10::Error& error) {
    throw UnavailableError(std::string("operators cannot be given generators of their own (") +
                           error.what_without_backtrace() + ")");
  }
}

}  // namespace

OwnGenerators::OwnGenerators(std::vector<at::Generator> generators)
    : carried_(c10::DebugInfoKind::TEST_INFO_2, make_carried(std::move(generators))),
      include_(kKey) {}

bool OwnGenerators::has(const at::Generator& generator) {
  const Carried* const carried = find_carried();
  return carried != nullptr && std::ranges::count(carried->generators, generator) > 0;
}

}  // namespace ftax
