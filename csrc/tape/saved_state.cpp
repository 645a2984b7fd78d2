// One call for all tensors where torch offers it: a step may have a thousand, each a launch.
#include "tape/saved_state.h"

#include <ATen/ops/_foreach_copy.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "core/error.h"
#include "runners/device_sync.h"

namespace ftax {

SavedState::SavedState(std::vector<at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : tensors) {
    if (tensor.layout() != at::kStrided || tensor.is_nested()) {
      throw InvalidArgumentError("state of layout " + c10::str(tensor.layout()) +
                                 " cannot be put back; keep it in tensors with strides");
    }
    at::Tensor view = tensor.detach();
    saved_.push_back(view.clone());
    if (std::find(devices_.begin(), devices_.end(), view.device()) == devices_.end()) {
      devices_.push_back(view.device());
    }
    live_.push_back(std::move(view));
  }
}

void SavedState::put_back() const {
  if (live_.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(live_, saved_);
  for (const c10::Device device : devices_) DeviceSync{device}();
}

}  // namespace ftax
