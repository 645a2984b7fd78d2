// Tensors together with what they held: one call puts it back.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace ftax {

class SavedState {
 public:
  // Copies what `tensors` hold now.
  explicit SavedState(const std::vector<at::Tensor>& tensors);

  // Returns when it is done, on the devices too. Autograd does not see it.
  void put_back() const;
  [[nodiscard]] bool is_empty() const { return live_.empty() && others_.empty(); }

 private:
  std::vector<at::Tensor> live_, saved_;
  std::vector<std::pair<at::Tensor, at::Tensor>> others_;  // sparse ones, and what they held
  std::vector<c10::Device> devices_;
};

}  // namespace ftax
