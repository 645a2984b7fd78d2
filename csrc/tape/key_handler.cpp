// The lock is held while torch registers and deregisters: the last holder may let go in a thread of
// the model while the next scope begins in another.
#include "tape/key_handler.h"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace ftax {
namespace {

struct Registered {
  KeyHandler::Handles handles;
  int holders = 0;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<c10::DispatchKey, Registered> keys;
};

Registry& get_registry() {
  static auto* const registry = new Registry();  // never destroyed: threads end after main does
  return *registry;
}

}  // namespace

KeyHandler::KeyHandler(c10::DispatchKey key, const std::function<Handles()>& make) : key_(key) {
  Registry& registry = get_registry();
  const std::scoped_lock lock(registry.mutex);
  Registered& registered = registry.keys[key];
  if (registered.holders == 0) registered.handles = make();
  ++registered.holders;
}

KeyHandler::KeyHandler(c10::DispatchKey key, c10::KernelFunction handler, const char* name)
    : KeyHandler(key, [&] {
        Handles handles;
        handles.push_back(
            c10::Dispatcher::singleton().registerFallback(key, std::move(handler), name));
        return handles;
      }) {}

KeyHandler::~KeyHandler() {
  Registry& registry = get_registry();
  const std::scoped_lock lock(registry.mutex);
  Registered& registered = registry.keys.at(key_);
  if (--registered.holders == 0) registered.handles.clear();
}

}  // namespace ftax
