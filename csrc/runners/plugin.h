// One runner that a library of somebody else made: its calls, with their failures in words.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ftax/runner.h"
#include "runners/plugin_library.h"

namespace ftax {

// Codes are those of the header.
struct PluginTensor {
  void* data = nullptr;
  std::vector<int64_t> shape;
  int32_t dtype = FTAX_FLOAT32;
};

// One runner of a library. A call that fails throws RunnerError, or UnsupportedError where the
// library says so, with the library, the call and the library's own reason; so does a C++ exception
// that it lets out. The device is made current where a runner is made, bound and destroyed; around
// an inference it is the caller's to make it so, once for many.
class Plugin {
 public:
  // Throws UnsupportedError for a device that the header has no code for.
  Plugin(const PluginLibrary& library, const std::string& config, c10::Device device, int threads);
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  ~Plugin();

  [[nodiscard]] const PluginLibrary& library() const { return library_; }
  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] bool has_prepare() const { return library_.api().prepare != nullptr; }
  void bind(int32_t kind, const std::string& name, const PluginTensor& tensor);
  void enqueue(void* stream) {
    if (call_enqueue(stream) != FTAX_OK) [[unlikely]] {
      fail("enqueue");
    }
  }
  // Each does nothing where the library has no such function.
  void synchronize(void* stream);
  void prepare(void* stream);

 private:
  using Call = int32_t (*)(ftax_runner* runner, void* stream);

  int32_t call_enqueue(void* stream);
  void call_optional(Call function, const char* name, void* stream);
  [[noreturn]] void fail(const std::string& call);

  const PluginLibrary& library_;
  c10::Device device_;
  ftax_runner* runner_ = nullptr;
  int32_t status_ = FTAX_OK;  // of the call that failed
};

}  // namespace ftax
