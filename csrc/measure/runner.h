// The one interface that the timed loop knows. A runner is one way to execute one inference: a
// Python callable, a tape, a TorchScript module. What a thread must hold
// while it runs (the GIL, inference mode, a stream) `enter` takes once a round, outside the timed
// region, so that no rung pays for it and all rungs pay the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ftax {

enum class Host { kPython, kCpp };

[[nodiscard]] inline const char* to_string(Host host) {
  return host == Host::kPython ? "python" : "cpp";
}

class Runner {
 public:
  // Thread state held for the length of a round; given back when it dies.
  class Scope {
   public:
    Scope() = default;
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    virtual ~Scope() = default;
  };

  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;

  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual Host host() const = 0;
  [[nodiscard]] virtual bool needs_gil() const = 0;

  [[nodiscard]] virtual std::unique_ptr<Scope> enter() { return nullptr; }

  // Runs before each sample, outside the timed region: what makes a sample start from a known
  // state.
  virtual void prepare() {}

  // True where a sample means something else without prepare(). Such a runner has no throughput:
  // between the requests of a burst there is no place to prepare.
  [[nodiscard]] virtual bool needs_prepare() const { return false; }

  // How often it has made itself ready anew inside of a request so far, as a capture does that
  // records again. Called under its scope, beside a part of a round and not between its requests.
  [[nodiscard]] virtual int64_t count_rebuilds() { return 0; }

  // Issues one inference. It may return before the device has done the work.
  virtual void enqueue() = 0;

  // Returns when all that was enqueued has finished.
  virtual void synchronize() {}
};

}  // namespace ftax
