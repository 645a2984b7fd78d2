// A copy is a plain memcpy, because that is what a replay does with it.
#include "tape/unwritten_memory.h"

#include <ATen/ops/empty_like.h>

#include <cstring>
#include <string>
#include <unordered_set>

namespace ftax {
namespace {

bool covers_storage(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_non_overlapping_and_dense() && tensor.nbytes() > 0 &&
         tensor.nbytes() == tensor.storage().nbytes();
}

}  // namespace

c10::StorageImpl* get_storage(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool UnwrittenMemory::is_made_by(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
}

bool UnwrittenMemory::reads_shapes_only(const c10::OperatorHandle& op) {
  // TorchScript asks for these by operator calls.
  static const std::unordered_set<std::string> sizes = {"aten::size",
                                                        "aten::dim",
                                                        "aten::numel",
                                                        "aten::stride",
                                                        "aten::len",
                                                        "aten::storage_offset",
                                                        "aten::is_floating_point",
                                                        "aten::is_complex"};
  const std::string& name = op.operator_name().name;
  return sizes.contains(name) || name.ends_with("_like") || name.starts_with("aten::new_") ||
         name.starts_with("aten::sym_") || name == "aten::detach" || name == "aten::is_same_size";
}

at::Tensor UnwrittenMemory::copy(const at::Tensor& tensor) const {
  c10::StorageImpl* storage = get_storage(tensor);
  if (storage == nullptr || !storages_.contains(storage) || !covers_storage(tensor)) return {};
  at::Tensor copy = at::empty_like(tensor);
  std::memcpy(copy.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
  return copy;
}

}  // namespace ftax
