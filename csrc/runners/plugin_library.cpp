// A library's table is copied, as far as it goes, over one of nulls. So a table that is shorter
// than ours, or longer, is one of ours.
#include "runners/plugin_library.h"

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

const ftax_runner_api* get_api(void* handle, const std::string& file_name) {
  auto* get = reinterpret_cast<GetApi>(dlsym(handle, "ftax_get_runner_api"));
  if (get == nullptr) {
    throw UnsupportedError(file_name +
                           " does not export ftax_get_runner_api; implement ftax/runner.h "
                           "(docs/extending.md)");
  }
  return guard_call(file_name, "ftax_get_runner_api", get);
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

}  // namespace ftax
