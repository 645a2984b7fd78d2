// The grad mode of a round. Inference mode is the default on every rung; no_grad is a labelled
// variant, and grad is of steps that train. It is a guard of libc10 that the C++ and the Python
// rungs enter alike, so that Python code inside sees exactly what `with torch.inference_mode()`
// would have set.
#pragma once

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <optional>

#include "measure/runner.h"

namespace ftax {

enum class GradMode { kInference, kNoGrad, kGrad };

class GradModeScope : public Runner::Scope {
 public:
  explicit GradModeScope(GradMode mode) {
    if (mode == GradMode::kInference) {
      inference_.emplace(true);
    } else {
      inference_.emplace(false);  // the caller may be in inference mode, which is another rung's
      grad_.emplace(mode == GradMode::kGrad);
    }
  }

 private:
  std::optional<c10::InferenceMode> inference_;
  std::optional<c10::AutoGradMode> grad_;
};

}  // namespace ftax
