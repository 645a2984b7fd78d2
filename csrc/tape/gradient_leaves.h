// What autograd's graph knows of the tensors of a recording.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace ftax {

// The leaves at which a backward pass from `roots` leaves gradients, wherever Python keeps them.
[[nodiscard]] std::vector<at::Tensor> find_leaves(const std::vector<at::Tensor>& roots);

// Whether a tensor among them requires a gradient.
[[nodiscard]] bool requires_grad(const std::vector<c10::IValue>& stack);

}  // namespace ftax
