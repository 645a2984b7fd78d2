// What the tensors that a captured call read were like while it was recorded: memory, layout, and
// what autograd does with them. A model has hundreds of them, so they lie close together.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace ftax {

class TensorGuards {
 public:
  // As the tensor is now, under a number of the caller's. If asked for, also which tensor its
  // gradient is, and which hooks wait for it.
  void add(const at::Tensor& tensor, size_t place, bool gradient, bool hooks);

  // The place of the first that is not as it was; nullopt: none.
  [[nodiscard]] std::optional<size_t> find_change() const;
  // What tells two states of a tensor that changed apart: addresses of its memory and its gradient.
  [[nodiscard]] py::object read(size_t place) const;

 private:
  using Address = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  struct State {
    at::Tensor tensor;
    const void* memory;  // of its storage
    int64_t offset;
    uint32_t first, dimensions;  // of its sizes, and then its strides, in layouts_
    size_t place;
    caffe2::TypeMeta dtype;
    bool requires_grad, is_strided;
    std::optional<c10::TensorImpl*> gradient;  // nullptr: it has none
    // Of the gradient, so that no other one gets its address. It holds no memory of its elements.
    Address address;
    std::optional<size_t> hooks;
  };

  [[nodiscard]] bool holds(const State& expected) const;

  std::vector<State> states_;
  std::vector<int64_t> layouts_;
};

}  // namespace ftax
