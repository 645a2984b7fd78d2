// Note [Threads that outlive a scope]
// What a model starts while a dispatch key is included carries the key along, and may outlive the
// scope: torch.jit.fork, a backward pass. Its calls need a handler for as long as it runs; without
// one, torch finds no kernel for them. Wherever torch hands on keys, it hands on its debug info
// too. A handler that is owned by debug info therefore lives exactly as long as anything that
// carries its key.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <vector>

namespace ftax {

// What is registered with torch for a dispatch key, while one of these lives: torch allows a key
// one handler.
class KeyHandler {
 public:
  using Handles = std::vector<c10::RegistrationHandleRAII>;

  // `make` registers, unless another of the key lives. Passes on what it throws: c10::Error if the
  // key has a handler of somebody else.
  KeyHandler(c10::DispatchKey key, const std::function<Handles()>& make);
  // Of all operator calls that reach the key. `name` stands in torch's dumps.
  KeyHandler(c10::DispatchKey key, c10::KernelFunction handler, const char* name);
  ~KeyHandler();
  KeyHandler(const KeyHandler&) = delete;
  KeyHandler& operator=(const KeyHandler&) = delete;

 private:
  c10::DispatchKey key_;
};

}  // namespace ftax
