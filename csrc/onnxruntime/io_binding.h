// The memory that a session reads and writes, and the inference itself. Each binding is checked
// against the model here, before ONNX Runtime sees it, because a wrong size in a raw pointer is
// memory corruption and not an error.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onnxruntime/api.h"
#include "onnxruntime/session.h"

namespace ftax::onnxruntime {

enum class Device { kCpu, kCuda };

[[nodiscard]] Device parse_device(const std::string& text);  // cpu, cuda

// A dense tensor in memory that somebody else owns and keeps alive as long as the binding.
struct TensorView {
  void* data;
  size_t bytes;
  std::vector<int64_t> shape;
  std::string element_type;  // torch's name: "float32"
  Device device = Device::kCpu;
};

// An output after a run; `data` belongs to the binding unless it was bound by the caller.
struct BoundOutput {
  std::string name;
  std::string element_type;
  std::vector<int64_t> shape;
  void* data;
  std::string memory;  // "Cpu", "Cuda", ...
};

class IoBinding {
 public:
  explicit IoBinding(std::shared_ptr<Session> session);

  [[nodiscard]] const Session& session() const { return *session_; }

  // Throw InvalidArgumentError, saying what the model expects, for a name, element type, shape or
  // size that does not fit. Binding a name again replaces what was bound.
  void bind_input(const std::string& name, const TensorView& view);
  void bind_output(const std::string& name, const TensorView& view);
  // ONNX Runtime allocates the memory, on `device`, when it runs.
  void bind_output(const std::string& name, Device device);

  // Throws InvalidArgumentError, naming them, if inputs or outputs are not bound. Call it once
  // before enqueue(), which does not look.
  void check_complete() const;

  // Issues one inference. Returns before the device is done only where the caller's stream was
  // given and all outputs are on the device; the caller then waits for that stream. What fails in a
  // run is a RunnerError.
  void enqueue();

  // check_complete, inputs synchronised, one inference, outputs synchronised.
  void run();

  // The outputs of the last run, in the model's order.
  [[nodiscard]] std::vector<BoundOutput> collect_outputs() const;

 private:
  [[nodiscard]] UniqueValue make_value(const ValueInfo& info, const TensorView& view) const;
  [[nodiscard]] const OrtMemoryInfo* memory(Device device) const;
  void choose_run_options();
  void check_run(OrtStatus* status) const;

  std::shared_ptr<Session> session_;
  Api api_;
  UniqueMemoryInfo cpu_memory_;
  UniqueMemoryInfo cuda_memory_;
  UniqueRunOptions asynchronous_;  // does not wait for the device at the end of a run
  UniqueIoBinding binding_;
  std::map<std::string, UniqueValue> values_;
  std::map<std::string, Device> bound_inputs_;
  std::map<std::string, Device> bound_outputs_;
  const OrtRunOptions* run_options_ = nullptr;
};

}  // namespace ftax::onnxruntime
