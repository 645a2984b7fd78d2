#include "runners/plugin.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "core/error.h"

namespace ftax {
namespace {

int32_t find_device_code(c10::Device device) {
  if (device.is_cpu()) return FTAX_DEVICE_CPU;
  if (device.is_cuda()) return FTAX_DEVICE_CUDA;
  throw UnsupportedError("device is '" + device.str() +
                         "', which ftax/runner.h has no code for; it has cpu and cuda");
}

[[noreturn]] void throw_status(int32_t status, const std::string& file_name,
                               const std::string& call, const char* reason) {
  const bool given = reason != nullptr && *reason != '\0';
  const std::string message = file_name + ": " + call + " failed with status " +
                              std::to_string(status) + ": " + (given ? reason : kNoReason);
  if (status == FTAX_UNSUPPORTED) throw UnsupportedError(message);
  throw RunnerError(message);
}

}  // namespace

Plugin::Plugin(const PluginLibrary& library, const std::string& config, c10::Device device,
               int threads)
    : library_(library), device_(device.type(), std::max<c10::DeviceIndex>(device.index(), 0)) {
  const ftax_context context{.struct_size = sizeof(ftax_context),
                             .abi_version = FTAX_RUNNER_ABI_VERSION,
                             .api_size = sizeof(ftax_runner_api),
                             .device_type = find_device_code(device_),
                             .device_index = device_.index(),
                             .threads = threads};
  const c10::DeviceGuard current(device_);
  const std::string call = "create(\"" + config + "\")";
  const std::string& file_name = library_.file_name();
  const int32_t status = guard_call(
      file_name, call, [&] { return library_.api().create(config.c_str(), &context, &runner_); });
  if (status != FTAX_OK) {
    throw_status(status, file_name, call, guard_call(file_name, "last_error", [&] {
                   return library_.api().last_error(nullptr);
                 }));
  }
  if (runner_ == nullptr) {
    throw RunnerError(file_name + ": " + call + " returned FTAX_OK and no runner");
  }
}

Plugin::~Plugin() {
  try {
    const c10::DeviceGuard current(device_);
    library_.api().destroy(runner_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor has nobody to tell
  }
}

void Plugin::bind(int32_t kind, const std::string& name, const PluginTensor& tensor) {
  const ftax_tensor view{.struct_size = sizeof(ftax_tensor),
                         .dtype = tensor.dtype,
                         .data = tensor.data,
                         .shape = tensor.shape.data(),
                         .ndim = static_cast<int64_t>(tensor.shape.size())};
  const c10::DeviceGuard current(device_);
  const std::string call = "bind(\"" + name + "\")";
  status_ = guard_call(library_.file_name(), call,
                       [&] { return library_.api().bind(runner_, kind, name.c_str(), &view); });
  if (status_ != FTAX_OK) fail(call);
}

int32_t Plugin::call_enqueue(void* stream) {
  try {
    status_ = library_.api().enqueue(runner_, stream);
  } catch (...) {
    guard_call(library_.file_name(), "enqueue", [] { throw; });
  }
  return status_;
}

void Plugin::synchronize(void* stream) {
  call_optional(library_.api().synchronize, "synchronize", stream);
}

void Plugin::prepare(void* stream) { call_optional(library_.api().prepare, "prepare", stream); }

void Plugin::call_optional(Call function, const char* name, void* stream) {
  if (function == nullptr) return;
  status_ = guard_call(library_.file_name(), name, [&] { return function(runner_, stream); });
  if (status_ != FTAX_OK) fail(name);
}

void Plugin::fail(const std::string& call) {
  const char* reason = guard_call(library_.file_name(), "last_error",
                                  [&] { return library_.api().last_error(runner_); });
  throw_status(status_, library_.file_name(), call, reason);
}

}  // namespace ftax
