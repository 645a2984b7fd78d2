// Finds and opens CUPTI and looks up its functions.
#include "cupti/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "core/error.h"

namespace ftax::cupti {
namespace {

// CUDA 11.6: the first whose clock can be replaced, and whose records have the fields that are
// read.
constexpr uint32_t kMinimumVersion = 17;
constexpr const char* kFileVariable = "FTAX_CUPTI_LIBRARY";
constexpr const char* kRemedy =
    "`pip install nvidia-cuda-cupti` (a CUDA build of torch brings it), or name the file of "
    "libcupti.so in FTAX_CUPTI_LIBRARY";
constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};

std::vector<std::string> list_toolkit_files() {
  std::vector<std::string> files;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) {
      files.push_back(std::string(root) + "/extras/CUPTI/lib64/libcupti.so");
      files.push_back(std::string(root) + "/lib64/libcupti.so");
    }
  }
  files.emplace_back("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so");
  return files;
}

void* search_handle() {
  for (const char* name : kNames) {
    if (void* loaded = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return loaded;
  }
  std::string tried;
  for (const char* name : kNames) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
    tried += std::string(tried.empty() ? "" : ", ") + name;
  }
  for (const std::string& file : list_toolkit_files()) {
    if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    tried += ", " + file;
  }
  throw UnavailableError("CUPTI was not found (tried " + tried + "); " + kRemedy);
}

void* open_handle(const std::string& file) {
  if (file.empty()) return search_handle();
  if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  throw UnavailableError("CUPTI could not be loaded: " + std::string(dlerror()) + "; " + kRemedy);
}

template <typename Function>
void find_function(void* handle, const char* name, const std::string& path, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) {
    throw UnavailableError(path + " is no CUPTI that ftax can use (it has no " + name + "); " +
                           kRemedy);
  }
}

std::string find_path(const void* symbol, const std::string& file) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : file;
}

const char* find_remedy(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
    case CUPTI_ERROR_NOT_COMPATIBLE:
      return "another profiler is using CUPTI: stop it (torch.profiler, nsys, ncu) and try again";
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "ask the administrator to load the driver with NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_NOT_INITIALIZED:
    case CUPTI_ERROR_UNKNOWN:  // what it says without a driver
      return "there may be no driver, or one older than this CUPTI: compare the CUDA versions that "
             "`nvidia-smi` and `pip list` show";
    default:
      return "try again in a process of its own, without another profiler";
  }
}

}  // namespace

const Library& Library::open() {
  // Never deleted, for the reason that it is never closed. If it throws, the next call tries again.
  static const Library* const instance = [] {
    const char* file = std::getenv(kFileVariable);
    return new Library(file == nullptr ? "" : file);
  }();
  return *instance;
}

Library::Library(const std::string& file) {
  handle_ = open_handle(file);
  path_ = file;
  find_function(handle_, "cuptiGetVersion", path_, functions_.cuptiGetVersion);
  path_ = find_path(reinterpret_cast<void*>(functions_.cuptiGetVersion), file);
  if (functions_.cuptiGetVersion(&version_) != CUPTI_SUCCESS || version_ < kMinimumVersion) {
    throw UnavailableError("CUPTI at " + path_ + " is too old: its version is " +
                           std::to_string(version_) + ", ftax needs " +
                           std::to_string(kMinimumVersion) + " (CUDA 11.6) or later; " + kRemedy);
  }
#define FTAX_FIND(name) find_function(handle_, #name, path_, functions_.name);
  FTAX_CUPTI_FUNCTIONS(FTAX_FIND)
#undef FTAX_FIND
}

void* Library::find(const char* name) const noexcept { return dlsym(handle_, name); }

void Library::check(CUptiResult result, const std::string& call) const {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  functions_.cuptiGetResultString(result, &text);
  throw UnavailableError(call + " failed: " + (text == nullptr ? "unknown CUPTI error" : text) +
                         " (" + std::to_string(result) + "); " + find_remedy(result));
}

}  // namespace ftax::cupti
