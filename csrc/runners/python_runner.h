// Drives a Python callable from the C++ loop: the Python-hosted rung. The loop is the same one that
// drives C++ runners, so the host language is the only thing that differs. The GIL is taken once a
// round and held: a training or serving process has it at this point too.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "measure/runner.h"
#include "runners/device_sync.h"
#include "runners/grad_mode.h"

namespace ftax {

// Throws what Python raised, as RunnerError, or Interrupted; `name` begins the message. Call it
// with the GIL held and an error set.
[[noreturn]] void rethrow_python_error(const std::string& name);

class PythonRunner final : public Runner {
 public:
  // `callable` takes no argument. `scope`, if it is not None, makes a context manager, in which
  // each round runs. `count_rebuilds`, if it is not None, gives what the method of that name does.
  // Construct and destroy with the GIL held.
  PythonRunner(pybind11::object callable, std::string name, c10::Device device, GradMode grad_mode,
               pybind11::object scope, pybind11::object count_rebuilds);

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kPython; }
  [[nodiscard]] bool needs_gil() const override { return true; }
  [[nodiscard]] std::unique_ptr<Scope> enter() override;
  [[nodiscard]] int64_t count_rebuilds() override;
  // The result is released before returning, as it is when a caller drops it.
  void enqueue() override;
  void synchronize() override { sync_(); }

  [[nodiscard]] const pybind11::object& callable() const { return callable_; }
  [[nodiscard]] c10::Device device() const { return sync_.device(); }
  [[nodiscard]] GradMode grad_mode() const { return grad_mode_; }

 private:
  pybind11::object callable_;
  std::string name_;
  DeviceSync sync_;
  GradMode grad_mode_;
  pybind11::object scope_;
  pybind11::object count_rebuilds_;
};

}  // namespace ftax
