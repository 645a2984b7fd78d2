// Note [Tensors that autograd makes]
// What autograd saves for the backward pass it unpacks as new tensors over the same memory, and its
// views are new tensors too. Below it a tensor is therefore also known by storage, offset, sizes,
// strides and dtype. A storage's address is not used again while a weak pointer to it is held.
#include "tape/slots.h"

#include "core/error.h"
#include "tape/unwritten_memory.h"

namespace ftax {
namespace {

bool is_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

bool has_plain_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

int Slots::add_input(const at::Tensor& tensor) {
  held_.push_back(tensor);
  const int slot = add(tensor);
  note_outside(tensor);
  outside_slots_.insert(slot);
  return slot;
}

void Slots::add_weight(const at::Tensor& tensor) {
  held_.push_back(tensor);
  weights_.insert(tensor.unsafeGetTensorImpl());
  remember_view(tensor, kNoSlot, tensor);
  note_outside(tensor);
}

int Slots::add(const at::Tensor& tensor) {
  const int slot = count_++;
  slots_[tensor.unsafeGetTensorImpl()] = slot;
  weak_tensors_.emplace_back(tensor.getIntrusivePtr());
  remember_view(tensor, slot, {});
  if (c10::StorageImpl* storage = get_storage(tensor);
      storage != nullptr && storages_.insert(storage).second) {
    weak_storages_.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  }
  return slot;
}

int Slots::find_same(const at::Tensor& tensor) const {
  const auto found = slots_.find(tensor.unsafeGetTensorImpl());
  return found != slots_.end() ? found->second : kNoSlot;
}

int Slots::find(const at::Tensor& tensor) {
  if (const int slot = find_same(tensor); slot != kNoSlot) return slot;
  if (!below_autograd_ || is_weight(tensor) || tensor.layout() != at::kStrided) return kNoSlot;
  const auto views = views_.find(get_storage(tensor));
  if (views == views_.end()) return kNoSlot;
  for (auto view = views->second.rbegin(); view != views->second.rend(); ++view) {
    if (!view->shows(tensor)) continue;
    const int slot = view->slot != kNoSlot ? view->slot : find_or_capture(at::Tensor(view->weight));
    slots_[tensor.unsafeGetTensorImpl()] = slot;
    weak_tensors_.emplace_back(tensor.getIntrusivePtr());
    return slot;
  }
  return kNoSlot;
}

int Slots::find_or_capture(const at::Tensor& tensor) {
  if (const int slot = find(tensor); slot != kNoSlot) return slot;
  if (!is_weight(tensor) && storages_.contains(get_storage(tensor))) {
    throw UnsupportedError(
        "a tensor shares memory with one that the inference computed, but no operator call made it "
        "(.data, .numpy() and C++ extensions do this; use .detach() or an operator)");
  }
  const int slot = count_++;
  slots_[tensor.unsafeGetTensorImpl()] = slot;
  constants_.emplace_back(slot, tensor);
  outside_slots_.insert(slot);
  note_outside(tensor);
  if (!is_weight(tensor) && !is_number(tensor)) captured_.push_back(slot);
  return slot;
}

int Slots::at(const at::Tensor& tensor) const { return slots_.at(tensor.unsafeGetTensorImpl()); }

bool Slots::is_weight(const at::Tensor& tensor) const {
  return weights_.contains(tensor.unsafeGetTensorImpl());
}

bool Slots::is_outside(const at::Tensor& tensor) const {
  return outside_storages_.contains(get_storage(tensor)) || is_outside(at(tensor));
}

void Slots::note_outside(const at::Tensor& tensor) {
  if (c10::StorageImpl* storage = get_storage(tensor)) outside_storages_.insert(storage);
}

bool Slots::View::shows(const at::Tensor& tensor) const {
  return has_plain_memory(tensor) && offset == tensor.storage_offset() &&
         tensor.sizes() == at::IntArrayRef(sizes) && tensor.strides() == at::IntArrayRef(strides) &&
         dtype == tensor.scalar_type();
}

void Slots::remember_view(const at::Tensor& tensor, int slot, const at::Tensor& weight) {
  if (!below_autograd_ || !has_plain_memory(tensor)) return;
  if (c10::StorageImpl* storage = get_storage(tensor)) {
    views_[storage].push_back({tensor.storage_offset(), tensor.sizes().vec(),
                               tensor.strides().vec(), tensor.scalar_type(), slot, weight});
  }
}

}  // namespace ftax
