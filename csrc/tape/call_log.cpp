// Composite operators are told from others as the dispatcher tells them: by a kernel that is made
// of other operators, and none for a backend.
#include "tape/call_log.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#include "core/clock.h"
#include "core/error.h"

namespace ftax {
namespace {

std::mutex mutex;  // of `active` and its calls: a thread of the model may outlive the log
std::atomic<CallLog*> active = nullptr;
uint64_t starts = 0;           // which log it is: another may get the address of one that is gone
thread_local int kernels = 0;  // that are under way in this thread, one within the other
thread_local int draws = 0;    // of them, those that draw random numbers

struct InKernel final : at::ObserverContext {
  uint64_t log = 0;
  size_t place = 0;
  bool does_draw = false;
  int errors = std::uncaught_exceptions();  // that fly through destructors around the call
};

bool is_composite(const c10::OperatorHandle& op) {
  constexpr c10::DispatchKey kBackends[] = {
      c10::DispatchKey::CPU,        c10::DispatchKey::CUDA,      c10::DispatchKey::SparseCPU,
      c10::DispatchKey::SparseCUDA, c10::DispatchKey::MkldnnCPU, c10::DispatchKey::QuantizedCPU};
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return false;
  for (const c10::DispatchKey backend : kBackends) {
    if (op.hasKernelForDispatchKey(backend)) return false;
  }
  return true;
}

// How far a generator is: attention, which draws, makes a tensor of it, of another number each
// time.
bool tells_generator(const LoggedCall& call) {
  return draws > 0 && call.name == "aten::scalar_tensor";
}

void add_value(const c10::IValue& value, LoggedCall& call) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || tensor.is_nested()) return;
    // A compiler at work calls operators on tensors whose sizes are not numbers.
    if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
    call.shapes.push_back(tensor.sizes().vec());
  } else if (tells_generator(call)) {
    return;
  } else if (value.isInt()) {
    call.integers.push_back(value.toInt());
  } else if (value.isBool()) {
    call.integers.push_back(value.toBool() ? 1 : 0);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) add_value(item, call);
  }
}

std::unique_ptr<InKernel> add_to_active(LoggedCall call, int64_t began_ns) {
  const std::scoped_lock lock(mutex);
  CallLog* const log = active;
  if (log == nullptr) return nullptr;
  auto kernel = std::make_unique<InKernel>();
  kernel->log = starts;
  log->note_begin(began_ns);
  kernel->place = log->add(std::move(call));
  return kernel;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const int64_t began_ns = now_ns();
  const std::optional<c10::OperatorName> name = function.operator_name();
  if (active == nullptr || !name.has_value()) return nullptr;
  const auto op = c10::Dispatcher::singleton().findOp(*name);
  if (!op.has_value() || is_composite(*op) || name->getNamespace() == "profiler") return nullptr;
  if (name->name == "aten::detach_") return nullptr;  // autograd's alone: it calls nothing below
  // torch.tensor hides from Python's modes, and from a recording, what it calls to fill memory.
  if (c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python)) return nullptr;
  LoggedCall call;
  call.name = c10::toString(*name);
  call.depth = kernels;
  for (const c10::IValue& value : function.inputs()) add_value(value, call);
  std::unique_ptr<InKernel> kernel = add_to_active(std::move(call), began_ns);
  if (kernel == nullptr) return nullptr;
  ++kernels;
  kernel->does_draw = op->hasTag(at::Tag::nondeterministic_seeded);
  draws += kernel->does_draw;
  return kernel;
}

void end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr) return;
  const int64_t ended_ns = now_ns();
  const auto& kernel = static_cast<const InKernel&>(*context);
  --kernels;
  draws -= kernel.does_draw;
  const bool raised = std::uncaught_exceptions() > kernel.errors;
  const std::scoped_lock lock(mutex);
  CallLog* const log = active;
  if (log == nullptr || starts != kernel.log) return;
  log->note_end(ended_ns);
  if (raised) log->mark_raised(kernel.place);
}

}  // namespace

void CallLog::start() {
  const std::scoped_lock lock(mutex);
  CallLog* nobody = nullptr;
  if (!active.compare_exchange_strong(nobody, this)) {
    throw UnavailableError("operator calls are being logged already; finish that first");
  }
  ++starts;
  kernels = draws = 0;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end)
                                           .needsInputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

void CallLog::stop() {
  if (handle_ == 0) return;
  at::removeCallback(handle_);
  handle_ = 0;
  const std::scoped_lock lock(mutex);
  active = nullptr;
}

}  // namespace ftax
