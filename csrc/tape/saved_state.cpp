// One call for all tensors where torch offers it: a step may have a thousand, each a launch.
#include "tape/saved_state.h"

#include <ATen/ops/_foreach_copy.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "runners/device_sync.h"

namespace ftax {

SavedState::SavedState(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) {
    const bool is_strided = tensor.layout() == at::kStrided && !tensor.is_nested();
    if (is_strided) {
      live_.push_back(tensor.detach());
      saved_.push_back(live_.back().clone());
    } else {  // a detached one would get parts of its own when it is written
      others_.emplace_back(tensor, tensor.clone());
    }
    if (std::find(devices_.begin(), devices_.end(), tensor.device()) == devices_.end()) {
      devices_.push_back(tensor.device());
    }
  }
}

void SavedState::put_back() const {
  if (is_empty()) return;
  const at::NoGradGuard no_grad;
  if (!live_.empty()) at::_foreach_copy_(live_, saved_);
  for (const auto& [tensor, saved] : others_) tensor.copy_(saved);
  for (const c10::Device device : devices_) DeviceSync{device}();
}

}  // namespace ftax
