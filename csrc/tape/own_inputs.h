// The memory from which a graph reads its inputs, the copies into it and back, and copies of what a
// graph wrote.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>
#include <utility>
#include <vector>

namespace ftax {

class OwnInputs {
 public:
  explicit OwnInputs(std::vector<at::Tensor> tensors);

  // Copies what is not there already; which places were copied.
  [[nodiscard]] std::vector<size_t> take(const std::vector<at::Tensor>& given);

  // Copies these back, for a graph that writes into its inputs.
  void give_back(const std::vector<at::Tensor>& given, const std::vector<size_t>& places) const;

 private:
  // Whether one of these lies where the graph reads another: who was lent them may swap them.
  [[nodiscard]] bool is_tangled(const std::vector<at::Tensor>& given,
                                const std::vector<size_t>& places) const;

  std::vector<at::Tensor> own_;
  std::unordered_set<const c10::StorageImpl*> memory_;
};

// Copies in separate memory, by few launches.
[[nodiscard]] std::vector<at::Tensor> copy_each(const std::vector<at::Tensor>& tensors);

}  // namespace ftax
