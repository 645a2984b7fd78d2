// A runtime that somebody else wrote, behind csrc/include/ftax/runner.h: the library and one runner
// that it made. A library is never closed. It may have threads and objects of its own, whose end
// would race with the end of the process.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ftax/runner.h"

namespace ftax {

// In the messages of a library that fails without saying why, or by an exception. `ftax conform`
// tells by them.
inline constexpr const char* kNoReason = "its last_error gives no reason";
inline constexpr const char* kThrew = "threw a C++ exception";

class PluginLibrary {
 public:
  // The library at `path`, opened once a process. Throws UnavailableError if it cannot be loaded,
  // UnsupportedError if it has no such interface or another version of it, and
  // InvalidArgumentError if the file has changed since this process opened it.
  [[nodiscard]] static const PluginLibrary& open(const std::string& path);

  // Its table as far as this ftax knows it: functions that the library lacks are null.
  [[nodiscard]] const ftax_runner_api& api() const { return api_; }
  // The file name, for messages: a path would tell where somebody keeps things.
  [[nodiscard]] const std::string& file_name() const { return file_name_; }
  [[nodiscard]] std::string name() const;

 private:
  explicit PluginLibrary(const std::string& path);

  std::string file_name_;
  ftax_runner_api api_{};
};

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
