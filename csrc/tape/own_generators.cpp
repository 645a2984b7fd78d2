// DeferredInit stands above autograd, is reserved for a library outside of torch, and is in no
// thread's set of keys but in that of this scope: other threads do not meet the handlers. Composite
// operators pass it again with what they are made of, so `randn`, which takes no generator, is met
// as `normal_`, which does.
#include "tape/own_generators.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "core/error.h"

namespace ftax {
namespace {

using Generators = std::vector<at::Generator>;

// A call on a thread of autograd may outlive the scope: it holds what it reads.
std::shared_ptr<const Generators>& get_active() {
  static auto* const active = new std::shared_ptr<const Generators>();
  return *active;
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
  const auto active = std::atomic_load(&get_active());
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; active != nullptr && i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (!value.isNone() || !takes_generator(arguments[i])) continue;
    const c10::Device device = find_device(c10::ArrayRef(*stack).slice(first));
    const auto own = std::ranges::find_if(*active, [&](const at::Generator& generator) {
      return generator.device().type() == device.type() &&
             (device.is_cpu() || generator.device() == device);
    });
    if (own != active->end()) value = *own;
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, OwnGenerators::kKey), stack);
}

}  // namespace

OwnGenerators::OwnGenerators(std::vector<at::Generator> generators) {
  if (std::atomic_load(&get_active()) != nullptr) {
    throw UnavailableError("operators draw from other generators already; finish that first");
  }
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  try {
    handlers_.push_back(dispatcher.registerFallback(kKey, c10::KernelFunction::makeFallthrough(),
                                                    "ftax own generators"));
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op.has_value() || !std::ranges::any_of(op->schema().arguments(), takes_generator)) {
        continue;
      }
      handlers_.push_back(dispatcher.registerImpl(
          name, kKey, c10::KernelFunction::makeFromBoxedFunction<&draw_from_own>(), std::nullopt,
          nullptr, "ftax own generators"));
    }
  } catch (const c10::Error& error) {
    throw UnavailableError(std::string("operators cannot be given generators of their own (") +
                           error.what_without_backtrace() + ")");
  }
  std::atomic_store(&get_active(), std::make_shared<const Generators>(std::move(generators)));
  include_.emplace(kKey);
}

OwnGenerators::~OwnGenerators() {
  std::atomic_store(&get_active(), std::shared_ptr<const Generators>());
}

bool OwnGenerators::has(const at::Generator& generator) {
  const auto active = std::atomic_load(&get_active());
  return active != nullptr && std::ranges::count(*active, generator) > 0;
}

}  // namespace ftax
