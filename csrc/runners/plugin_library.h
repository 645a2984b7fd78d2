// A library of runners that somebody else wrote, behind csrc/include/ftax/runner.h. It is never
// closed: it may have threads and objects of its own, whose end would race with the end of the
// process.
#pragma once

#include <exception>
#include <string>

#include "core/error.h"
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

// Calls into a library: a C++ exception that leaves it becomes a RunnerError.
template <typename Call>
auto guard_call(const std::string& file_name, const std::string& call, Call&& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    throw RunnerError(file_name + ": " + call + " " + kThrew + " (" + error.what() +
                      "); catch it there and return FTAX_ERROR");
  } catch (...) {
    throw RunnerError(file_name + ": " + call + " " + kThrew +
                      "; catch it there and return FTAX_ERROR");
  }
}

}  // namespace ftax
