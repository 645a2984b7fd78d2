// Every call into the library goes through `guard`: a C++ exception that leaves it becomes an error
// of ours, and the status tells the rest. A library's table is copied, as far as it goes, over one
// of nulls. So a table that is shorter than ours, or longer, is one of ours.
#include "runners/plugin.h"

#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace ftax {
namespace {

using GetApi = const ftax_runner_api* (*)();

// The layout of version 2 as it was first given out: what comes later goes behind, and the sizes
// here grow with it. A field in padding would leave the size as it was, so there is none.
static_assert(offsetof(ftax_tensor, ndim) == 24 && sizeof(ftax_tensor) == 32);
static_assert(offsetof(ftax_context, threads) == 20 && sizeof(ftax_context) == 24);
static_assert(offsetof(ftax_runner_api, prepare) == 72 && sizeof(ftax_runner_api) == 80);

// What every library has: all before the first optional function.
constexpr size_t kLeastApiBytes = offsetof(ftax_runner_api, synchronize);

// Which file it is, and when it last changed.
struct FileState {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t changed_ns = 0;
  bool operator==(const FileState&) const = default;
};

FileState read_state(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) {
    throw UnavailableError("there is no library " + path + "; give the path of a shared library");
  }
  return {status.st_dev, status.st_ino,
          int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

template <typename Call>
auto guard(const std::string& file_name, const std::string& call, Call&& body) {
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

const ftax_runner_api* get_api(void* handle, const std::string& file_name) {
  auto* get = reinterpret_cast<GetApi>(dlsym(handle, "ftax_get_runner_api"));
  if (get == nullptr) {
    throw UnsupportedError(file_name +
                           " does not export ftax_get_runner_api; implement ftax/runner.h "
                           "(docs/extending.md)");
  }
  return guard(file_name, "ftax_get_runner_api", get);
}

// Before any other field is read: their places depend on the version.
void check_version(const ftax_runner_api* api, const std::string& file_name) {
  if (api == nullptr) {
    throw UnsupportedError(file_name +
                           ": ftax_get_runner_api returned null; return the address of a table");
  }
  if (api->abi_version != FTAX_RUNNER_ABI_VERSION) {
    throw UnsupportedError(file_name + " was built for version " +
                           std::to_string(api->abi_version) +
                           " of the runner interface, and this ftax speaks version " +
                           std::to_string(FTAX_RUNNER_ABI_VERSION) +
                           "; build it with the header of this ftax, which says what differs");
  }
  if (api->struct_size < kLeastApiBytes || api->struct_size % alignof(ftax_runner_api) != 0) {
    throw UnsupportedError(file_name + ": its table has struct_size " +
                           std::to_string(api->struct_size) +
                           ", and what every library has takes " + std::to_string(kLeastApiBytes) +
                           " bytes, in whole functions; set it to sizeof(ftax_runner_api)");
  }
}

// Functions past its end, null; without what is past ours.
ftax_runner_api copy_api(const ftax_runner_api& api) {
  ftax_runner_api known{};
  std::memcpy(&known, &api, std::min<size_t>(api.struct_size, sizeof known));
  return known;
}

void check_functions(const ftax_runner_api& api, const std::string& file_name) {
  const std::pair<const char*, bool> present[] = {
      {"name", api.name != nullptr},       {"create", api.create != nullptr},
      {"bind", api.bind != nullptr},       {"enqueue", api.enqueue != nullptr},
      {"destroy", api.destroy != nullptr}, {"last_error", api.last_error != nullptr},
  };
  for (const auto& [field, is_set] : present) {
    if (!is_set) {
      throw UnsupportedError(file_name + ": `" + field +
                             "` of its table is null; only synchronize and prepare may be");
    }
  }
}

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

const PluginLibrary& PluginLibrary::open(const std::string& path) {
  static std::mutex mutex;
  // Never deleted: see the header.
  static auto& opened = *new std::map<std::string, std::pair<FileState, const PluginLibrary*>>();
  const std::lock_guard<std::mutex> lock(mutex);
  const FileState state = read_state(path);
  const std::string key = std::filesystem::canonical(path).string();
  const auto known = opened.find(key);
  if (known == opened.end()) {
    return *opened.emplace(key, std::pair(state, new PluginLibrary(key))).first->second.second;
  }
  if (known->second.first != state) {
    throw InvalidArgumentError(known->second.second->file_name() +
                               " has changed since this process opened it, and a process cannot "
                               "open a library anew; start another one");
  }
  return *known->second.second;
}

PluginLibrary::PluginLibrary(const std::string& path)
    : file_name_(std::filesystem::path(path).filename().string()) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw UnavailableError(file_name_ + " could not be loaded: " + dlerror());
  }
  const ftax_runner_api* api = get_api(handle, file_name_);
  check_version(api, file_name_);
  api_ = copy_api(*api);
  check_functions(api_, file_name_);
}

std::string PluginLibrary::name() const { return api_.name; }

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
  const int32_t status = guard(
      file_name, call, [&] { return library_.api().create(config.c_str(), &context, &runner_); });
  if (status != FTAX_OK) {
    throw_status(status, file_name, call, guard(file_name, "last_error", [&] {
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
  status_ = guard(library_.file_name(), call,
                  [&] { return library_.api().bind(runner_, kind, name.c_str(), &view); });
  if (status_ != FTAX_OK) fail(call);
}

int32_t Plugin::call_enqueue(void* stream) {
  try {
    status_ = library_.api().enqueue(runner_, stream);
  } catch (...) {
    guard(library_.file_name(), "enqueue", [] { throw; });
  }
  return status_;
}

void Plugin::synchronize(void* stream) {
  call_optional(library_.api().synchronize, "synchronize", stream);
}

void Plugin::prepare(void* stream) { call_optional(library_.api().prepare, "prepare", stream); }

void Plugin::call_optional(Call function, const char* name, void* stream) {
  if (function == nullptr) return;
  status_ = guard(library_.file_name(), name, [&] { return function(runner_, stream); });
  if (status_ != FTAX_OK) fail(name);
}

void Plugin::fail(const std::string& call) {
  const char* reason =
      guard(library_.file_name(), "last_error", [&] { return library_.api().last_error(runner_); });
  throw_status(status_, library_.file_name(), call, reason);
}

}  // namespace ftax
