// The errors of the driver. A file of its own, so that tests can link it with a driver of theirs.
#include <string>

#include "core/error.h"
#include "cuda/driver.h"

namespace ftax::cuda {

const char* Driver::name_error(CUresult code) const {
  const char* name = nullptr;
  return get_error_name(code, &name) == CUDA_SUCCESS && name != nullptr ? name : "an unknown code";
}

void Driver::fail(CUresult code, const char* call) const {
  const char* text = nullptr;
  const bool known = get_error_string(code, &text) == CUDA_SUCCESS && text != nullptr;
  throw RunnerError(std::string(call) + " failed with " + name_error(code) + " (" +
                    std::to_string(static_cast<int>(code)) + "): " + (known ? text : "no text") +
                    " (an earlier kernel may be the cause: CUDA_LAUNCH_BLOCKING=1 tells)");
}

}  // namespace ftax::cuda
