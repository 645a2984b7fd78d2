// Fields are read where torch keeps them: its own functions take longer than all else that is asked
// of a tensor.
#include "bindings/torch/tensor_guards.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <string_view>
#include <typeinfo>

namespace ftax {
namespace {

struct Autograd {
  bool requires_grad = false;
  c10::TensorImpl* gradient = nullptr;  // it has none
};

Autograd read_autograd(const c10::TensorImpl& tensor) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(tensor.autograd_meta());
  if (meta == nullptr) return {};
  const bool followed =
      meta->is_view_ ? tensor.requires_grad() : meta->requires_grad_ || meta->grad_fn_ != nullptr;
  return {followed, meta->grad_.defined() ? meta->grad_.unsafeGetTensorImpl() : nullptr};
}

at::Tensor get_gradient(const at::Tensor& tensor) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(
      tensor.unsafeGetTensorImpl()->autograd_meta());
  return meta == nullptr ? at::Tensor() : meta->grad_;
}

// Which hooks these are, in one number; 0 for none. Those of Python share one of C++, with a table
// of them, which is told by the name of its class: torch does not export what a dynamic_cast needs.
template <class PythonHook, class Hooks>
size_t mix_hooks(const Hooks& hooks, std::string_view name, size_t mixed) {
  const auto mix = [&](const void* it) { mixed = at::hash_combine(mixed, at::get_hash(name, it)); };
  for (const auto& hook : hooks) {
    const auto& it = *hook;
    if (std::string_view(typeid(it).name()).find(name) == std::string_view::npos) {
      mix(hook.get());
      continue;
    }
    PyObject *key = nullptr, *function = nullptr;
    PyObject* const table = static_cast<const PythonHook*>(hook.get())->dict;
    for (Py_ssize_t place = 0; PyDict_Next(table, &place, &key, &function);) mix(function);
  }
  return mixed;
}

// Of the node of autograd that adds to the gradient of a leaf, where wrappers (DDP) have theirs.
size_t mix_hooks(const at::Tensor& tensor) {
  using torch::autograd::PyFunctionPostHook, torch::autograd::PyFunctionPreHook;
  const auto node = torch::autograd::impl::try_get_grad_accumulator(tensor);
  if (!node) return 0;
  const size_t before = mix_hooks<PyFunctionPreHook>(node->pre_hooks(), "PyFunctionPreHook", 0);
  return mix_hooks<PyFunctionPostHook>(node->post_hooks(), "PyFunctionPostHook", before);
}

const void* find_memory(const c10::TensorImpl& tensor) {
  return tensor.unsafe_storage().data_ptr().get();
}

}  // namespace

void TensorGuards::add(const at::Tensor& tensor, size_t place, bool gradient, bool hooks) {
  const bool strided = tensor.layout() == at::kStrided && !tensor.is_nested();
  const bool in_memory = strided && tensor.has_storage();
  const at::IntArrayRef sizes = strided ? tensor.sizes() : at::IntArrayRef();
  const at::IntArrayRef strides = strided ? tensor.strides() : at::IntArrayRef();
  const Autograd autograd = read_autograd(*tensor.unsafeGetTensorImpl());
  states_.push_back({tensor, in_memory ? find_memory(*tensor.unsafeGetTensorImpl()) : nullptr,
                     in_memory ? tensor.storage_offset() : 0,
                     static_cast<uint32_t>(layouts_.size()), static_cast<uint32_t>(sizes.size()),
                     place, tensor.dtype(), autograd.requires_grad, strided,
                     gradient ? std::optional(autograd.gradient) : std::nullopt,
                     Address((gradient ? get_gradient(tensor) : at::Tensor()).getIntrusivePtr()),
                     hooks ? std::optional(mix_hooks(tensor)) : std::nullopt});
  layouts_.insert(layouts_.end(), sizes.begin(), sizes.end());
  layouts_.insert(layouts_.end(), strides.begin(), strides.end());
}

std::optional<size_t> TensorGuards::find_change() const {
  for (const State& expected : states_) {
    if (!holds(expected)) return expected.place;
  }
  return std::nullopt;
}

py::object TensorGuards::read(size_t place) const {
  for (const State& expected : states_) {
    if (expected.place != place) continue;
    const c10::TensorImpl& now = *expected.tensor.unsafeGetTensorImpl();
    const void* const memory = expected.memory == nullptr ? nullptr : find_memory(now);
    return py::make_tuple(reinterpret_cast<uintptr_t>(memory),
                          reinterpret_cast<uintptr_t>(read_autograd(now).gradient));
  }
  return py::none();
}

bool TensorGuards::holds(const State& expected) const {
  const c10::TensorImpl& now = *expected.tensor.unsafeGetTensorImpl();
  const Autograd autograd = read_autograd(now);
  if (now.dtype() != expected.dtype || autograd.requires_grad != expected.requires_grad) {
    return false;
  }
  if (expected.gradient.has_value() && autograd.gradient != *expected.gradient) return false;
  if (expected.hooks.has_value() && mix_hooks(expected.tensor) != *expected.hooks) return false;
  if (!expected.is_strided) return true;
  if (expected.memory != nullptr &&
      (find_memory(now) != expected.memory || now.storage_offset() != expected.offset)) {
    return false;
  }
  const at::IntArrayRef sizes = now.sizes(), strides = now.strides();
  if (sizes.size() != expected.dimensions) return false;
  const int64_t* layout = layouts_.data() + expected.first;
  for (size_t i = 0; i < expected.dimensions; ++i) {
    if (sizes[i] != layout[i] || strides[i] != layout[expected.dimensions + i]) return false;
  }
  return true;
}

}  // namespace ftax
