// Opens the library and creates its environment. The log level is the highest there is: each
// failure comes back as a status, and a line on stderr besides it would spoil the output of a
// program that handles the error.
#include "onnxruntime/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include "core/error.h"
#include "onnxruntime/slot_check.h"

namespace ftax::onnxruntime {
namespace {

constexpr const char* kSoname = "libonnxruntime.so.1";
constexpr const char* kRemedy =
    "`pip install onnxruntime`, or `pip install onnxruntime-gpu` for the CUDA provider";

void* open_handle(const std::string& path) {
  if (void* loaded = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return loaded;
  // Before it loads: the library reads this once, at its start.
  setenv("ORT_DISABLE_TELEMETRY", "1", 1);
  if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  throw UnavailableError("ONNX Runtime could not be loaded: " + std::string(dlerror()) + "; " +
                         kRemedy);
}

// "1.31.1" -> 31: the interface's version is the release's second number. 0 if it has none.
uint32_t parse_api_version(const std::string& version) {
  uint32_t minor = 0;
  const size_t dot = version.find('.');
  if (dot != std::string::npos && version.substr(0, dot) == "1") {
    std::from_chars(version.data() + dot + 1, version.data() + version.size(), minor);
  }
  return minor;
}

}  // namespace

const Library& Library::open(const std::string& path) {
  static std::mutex mutex;
  static const Library* instance = nullptr;  // never deleted: see the header
  const std::lock_guard<std::mutex> lock(mutex);
  if (instance == nullptr) instance = new Library(path);
  return *instance;
}

Library::Library(const std::string& path) {
  void* handle = open_handle(path);
  void* symbol = dlsym(handle, "OrtGetApiBase");
  if (symbol == nullptr) {
    dlclose(handle);
    throw UnavailableError(path + " is no ONNX Runtime library (it has no OrtGetApiBase); " +
                           kRemedy);
  }
  Dl_info info{};
  path_ = dladdr(symbol, &info) != 0 ? info.dli_fname : path;
  const OrtApiBase* base = reinterpret_cast<const OrtApiBase* (*)()>(symbol)();
  version_ = base->get_version();
  api_version_ = parse_api_version(version_);
  // Asked first: GetApi would answer an unknown version with a line on stderr.
  const void* table = nullptr;
  if (api_version_ >= kRequiredApiVersion) {
    table = base->get_api(std::min(api_version_, kAssignmentApiVersion));
  }
  if (table == nullptr) {
    const std::string found = version_;
    dlclose(handle);
    throw UnavailableError("ONNX Runtime " + found + " at " + path_ +
                           " does not have the C interface of 1.20 to 1.x that ftax uses; "
                           "`pip install -U onnxruntime`");
  }
  api_ = Api(table);
  api_.check(kReinstall, kCreateEnv, LogLevel::kFatal, "ftax", &env_);
  api_.check(kReinstall, kDisableTelemetryEvents, env_);
  api_.check(kReinstall, kGetAllocatorWithDefaultOptions, &allocator_);
  check_slots(*this);
}

std::vector<std::string> Library::collect_providers() const {
  char** names = nullptr;
  int count = 0;
  api_.check(kReinstall, kGetAvailableProviders, &names, &count);
  std::vector<std::string> providers(names, names + count);
  api_.check(kReinstall, kReleaseAvailableProviders, names, count);
  return providers;
}

}  // namespace ftax::onnxruntime
