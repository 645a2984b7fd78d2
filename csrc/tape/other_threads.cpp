// The watch outlives who asked for it. Another thread may be about to write down what it calls when
// watching ends, and the place must still be there.
#include "tape/other_threads.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.h"

namespace ftax {
namespace {

struct Watch {
  std::mutex mutex;
  std::optional<at::CallbackHandle> handle;  // none: nobody asks
  std::thread::id asked;
  std::string first;
};

Watch& get_watch() {
  static auto* const watch = new Watch();  // never destroyed: threads end after main does
  return *watch;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  if (torch::autograd::get_current_graph_task_id() != -1) return nullptr;  // a backward pass
  if (at::in_parallel_region()) return nullptr;  // of a kernel, as attention's backward
  Watch& watch = get_watch();
  const std::scoped_lock lock(watch.mutex);
  const bool is_other = watch.handle.has_value() && std::this_thread::get_id() != watch.asked;
  if (is_other && watch.first.empty()) watch.first = function.name();
  return nullptr;
}

}  // namespace

void watch_other_threads() {
  Watch& watch = get_watch();
  const std::scoped_lock lock(watch.mutex);
  if (watch.handle.has_value()) {
    throw UnavailableError("other threads are watched already; finish that first");
  }
  watch.asked = std::this_thread::get_id();
  watch.first.clear();
  at::RecordFunctionCallback callback(&begin);
  watch.handle = at::addGlobalCallback(callback.scopes({at::RecordScope::FUNCTION}));
}

std::string unwatch_other_threads() {
  Watch& watch = get_watch();
  std::optional<at::CallbackHandle> handle;
  std::string first;
  {
    const std::scoped_lock lock(watch.mutex);
    handle = std::exchange(watch.handle, std::nullopt);
    first = std::exchange(watch.first, {});
  }
  if (handle.has_value()) at::removeCallback(*handle);
  return first;
}

}  // namespace ftax
