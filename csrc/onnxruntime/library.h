// The ONNX Runtime library of this process, opened at run time: ftax neither links nor needs it to
// be imported. It is never closed and its environment never released. Its threads and static
// objects would otherwise race with the end of the process.
#pragma once

#include <string>
#include <vector>

#include "onnxruntime/api.h"

namespace ftax::onnxruntime {

class Library {
 public:
  // A copy that is already loaded, whoever loaded it; else the one at `path`. Throws
  // UnavailableError if it is missing, is something else, is older than 1.20, or does not answer as
  // slots.h says.
  [[nodiscard]] static const Library& open(const std::string& path);

  [[nodiscard]] const Api& api() const { return api_; }
  [[nodiscard]] const OrtEnv* env() const { return env_; }
  [[nodiscard]] OrtAllocator* allocator() const { return allocator_; }

  // The file that is really loaded, which may not be the one that was asked for.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  [[nodiscard]] uint32_t api_version() const { return api_version_; }
  [[nodiscard]] std::string build_info() const { return api_.call(kGetBuildInfoString); }
  // Execution providers that this build knows, best first, e.g. "CPUExecutionProvider". One that is
  // listed may still fail to load.
  [[nodiscard]] std::vector<std::string> collect_providers() const;

 private:
  explicit Library(const std::string& path);

  std::string path_;
  std::string version_;
  uint32_t api_version_ = 0;
  Api api_;
  OrtEnv* env_ = nullptr;
  OrtAllocator* allocator_ = nullptr;
};

}  // namespace ftax::onnxruntime
