// Note [Memory that Python fills]
// torch.tensor([1, 2]) dispatches `empty`, then writes the numbers without any operator call.
// Memory that came from an empty-like operator and that no recorded call has written is therefore
// copied when a call first reads all of it, and the copy becomes a fill call before that call. A
// call that only makes a view (its output shares the storage) reads nothing, except `lift_fresh`,
// which is torch's own mark for "this was filled". A call that writes a part of the memory counts
// as writing it all: what a model does with torch.empty and indexing is computed, not filled.
// On a device there is no such copy: what reads unwritten memory there is refused, because a replay
// could find it filled by an earlier run.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_set>

namespace ftax {

// nullptr for tensors that have no storage of their own.
[[nodiscard]] c10::StorageImpl* get_storage(const at::Tensor& tensor);

// The storages that no call is known to have written. Whoever uses it sees to it that a storage's
// address is not used again.
class UnwrittenMemory {
 public:
  // Whether the contents of what `op` returns are undefined: empty, empty_like, new_empty, ...
  [[nodiscard]] static bool is_made_by(const c10::OperatorHandle& op);

  // Whether `op` looks at its arguments' shapes and never at what they hold: empty_like,
  // zeros_like, new_zeros, size, ...
  [[nodiscard]] static bool reads_shapes_only(const c10::OperatorHandle& op);

  [[nodiscard]] bool contains(const at::Tensor& tensor) const {
    return storages_.contains(get_storage(tensor));
  }
  void insert(const at::Tensor& tensor) { storages_.insert(get_storage(tensor)); }
  // Returns whether it was there.
  bool erase(const at::Tensor& tensor) { return storages_.erase(get_storage(tensor)) > 0; }

  // A copy of what `tensor` holds, if it is all of an unwritten storage; else undefined.
  [[nodiscard]] at::Tensor copy(const at::Tensor& tensor) const;

 private:
  std::unordered_set<c10::StorageImpl*> storages_;
};

}  // namespace ftax
