// Binds, checks and runs. enqueue() is the measured path: one call, nothing allocated on our side.
#include "onnxruntime/io_binding.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "onnxruntime/element_type.h"

namespace ftax::onnxruntime {
namespace {

constexpr std::string_view kBindRemedy = "bind memory on a device that the session's provider uses";
constexpr std::string_view kOutputsRemedy = "run the session before collecting its outputs";

std::string describe_shape(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

std::string describe_shape(const std::vector<Dimension>& shape) {
  std::string text;
  for (const Dimension& dimension : shape) {
    text += text.empty() ? "" : ", ";
    if (dimension.size >= 0) {
      text += std::to_string(dimension.size);
    } else {
      text += dimension.symbol.empty() ? "any" : dimension.symbol;
    }
  }
  return "[" + text + "]";
}

std::string describe_names(const std::vector<ValueInfo>& values) {
  std::string text;
  for (const ValueInfo& value : values) text += (text.empty() ? "'" : ", '") + value.name + "'";
  return text;
}

const ValueInfo& find_value(const std::vector<ValueInfo>& values, const std::string& name,
                            const char* kind) {
  for (const ValueInfo& value : values) {
    if (value.name == name) return value;
  }
  throw InvalidArgumentError("the model has no " + std::string(kind) + " '" + name + "'; it has " +
                             describe_names(values));
}

bool fits(const std::vector<Dimension>& wanted, const std::vector<int64_t>& shape) {
  return wanted.size() == shape.size() && std::equal(wanted.begin(), wanted.end(), shape.begin(),
                                                     [](const Dimension& dimension, int64_t size) {
                                                       return dimension.size < 0 ||
                                                              dimension.size == size;
                                                     });
}

// `name` is ONNX Runtime's own; a name or a number of a device that the machine lacks is accepted.
UniqueMemoryInfo make_memory(const Api& api, const char* name, int device_id) {
  return api.make<UniqueMemoryInfo>(kReinstall, kCreateMemoryInfo, name, AllocatorType::kDevice,
                                    device_id, MemoryType::kDefault);
}

void describe_value(const Api& api, OrtValue* value, BoundOutput& output) {
  const UniqueTensorInfo info =
      api.make<UniqueTensorInfo>(kOutputsRemedy, kGetTensorTypeAndShape, value);
  int element_type = 0;
  size_t rank = 0;
  api.check(kReinstall, kGetTensorElementType, info.get(), &element_type);
  api.check(kReinstall, kGetDimensionsCount, info.get(), &rank);
  output.element_type = find_element_type(element_type).name;
  output.shape.resize(rank);
  api.check(kReinstall, kGetDimensions, info.get(), output.shape.data(), rank);
  api.check(kReinstall, kGetTensorMutableData, value, &output.data);
  const OrtMemoryInfo* memory = nullptr;  // owned by the value
  const char* name = nullptr;
  api.check(kReinstall, kGetTensorMemoryInfo, value, &memory);
  api.check(kReinstall, kMemoryInfoGetName, memory, &name);
  output.memory = name;
}

void check_bound(const std::vector<ValueInfo>& values, const std::map<std::string, Device>& bound,
                 const char* kind) {
  for (const ValueInfo& value : values) {
    if (bound.contains(value.name)) continue;
    throw InvalidArgumentError(std::string(kind) + " '" + value.name + "' is not bound; bind " +
                               describe_names(values) + " before running");
  }
}

}  // namespace

Device parse_device(const std::string& text) {
  if (text == "cpu") return Device::kCpu;
  if (text == "cuda") return Device::kCuda;
  throw InvalidArgumentError("device is '" + text + "'; use one of cpu, cuda");
}

IoBinding::IoBinding(std::shared_ptr<Session> session)
    : session_(std::move(session)), api_(session_->library().api()) {
  cpu_memory_ = make_memory(api_, "Cpu", 0);
  cuda_memory_ = make_memory(api_, "Cuda", session_->options().device_id);
  binding_ = api_.make<UniqueIoBinding>(kReinstall, kCreateIoBinding, session_->handle());
  asynchronous_ = api_.make<UniqueRunOptions>(kReinstall, kCreateRunOptions);
  api_.check(kReinstall, kAddRunConfigEntry, asynchronous_.get(),
             "disable_synchronize_execution_providers", "1");
}

const OrtMemoryInfo* IoBinding::memory(Device device) const {
  if (device == Device::kCpu) return cpu_memory_.get();
  if (session_->options().provider == Provider::kCuda) return cuda_memory_.get();
  throw InvalidArgumentError(
      "memory of device cuda cannot be bound to a session of provider cpu; "
      "make the session with provider cuda");
}

UniqueValue IoBinding::make_value(const ValueInfo& info, const TensorView& view) const {
  const ElementType& wanted = find_element_type(info.element_type);
  const ElementType& type = find_element_type(view.element_type);
  if (type.code != wanted.code) {
    throw InvalidArgumentError("'" + info.name + "' is bound to " + type.name +
                               ", but the model has " + wanted.name + "; convert the tensor");
  }
  if (!fits(info.shape, view.shape)) {
    throw InvalidArgumentError("'" + info.name + "' is bound to shape " +
                               describe_shape(view.shape) + ", but the model has " +
                               describe_shape(info.shape) +
                               "; export it with these inputs or pass the shape it has");
  }
  const size_t bytes = compute_bytes(type, view.shape);
  if (view.bytes != bytes) {
    throw InvalidArgumentError("'" + info.name + "' is bound to " + std::to_string(view.bytes) +
                               " bytes, but shape " + describe_shape(view.shape) + " of " +
                               type.name + " takes " + std::to_string(bytes) +
                               "; pass a contiguous tensor");
  }
  return api_.make<UniqueValue>(kBindRemedy, kCreateTensorWithDataAsOrtValue, memory(view.device),
                                view.data, view.bytes, view.shape.data(), view.shape.size(),
                                type.code);
}

void IoBinding::bind_input(const std::string& name, const TensorView& view) {
  UniqueValue value = make_value(find_value(session_->inputs(), name, "input"), view);
  api_.check(kBindRemedy, kBindInput, binding_.get(), name.c_str(), value.get());
  values_["input " + name] = std::move(value);
  bound_inputs_[name] = view.device;
}

void IoBinding::bind_output(const std::string& name, const TensorView& view) {
  UniqueValue value = make_value(find_value(session_->outputs(), name, "output"), view);
  api_.check(kBindRemedy, kBindOutput, binding_.get(), name.c_str(), value.get());
  values_["output " + name] = std::move(value);
  bound_outputs_[name] = view.device;
  choose_run_options();
}

void IoBinding::bind_output(const std::string& name, Device device) {
  find_value(session_->outputs(), name, "output");
  api_.check(kBindRemedy, kBindOutputToDevice, binding_.get(), name.c_str(), memory(device));
  values_.erase("output " + name);
  bound_outputs_[name] = device;
  choose_run_options();
}

// Who gave the stream can wait for it. In each other case, and where an output has to be copied to
// the host, the wait at the end of the run that ONNX Runtime does by default is needed.
void IoBinding::choose_run_options() {
  const bool on_device = std::all_of(bound_outputs_.begin(), bound_outputs_.end(),
                                     [](const auto& item) { return item.second == Device::kCuda; });
  const bool own_stream = session_->options().user_compute_stream != nullptr;
  run_options_ = on_device && own_stream ? asynchronous_.get() : nullptr;
}

void IoBinding::check_complete() const {
  check_bound(session_->inputs(), bound_inputs_, "input");
  check_bound(session_->outputs(), bound_outputs_, "output");
}

// Not api_.check(): its error classes blame the caller for what may be a value inside a tensor.
void IoBinding::check_run(OrtStatus* status) const {
  if (status == nullptr) return;
  throw RunnerError("ONNX Runtime failed while it ran " + session_->options().model_path +
                    " with " + api_.take_message(status) +
                    "; try the same inputs in onnxruntime.InferenceSession");
}

void IoBinding::enqueue() {
  check_run(api_.call(kRunWithBinding, session_->handle(), run_options_, binding_.get()));
}

void IoBinding::run() {
  check_complete();
  check_run(api_.call(kSynchronizeBoundInputs, binding_.get()));
  enqueue();
  check_run(api_.call(kSynchronizeBoundOutputs, binding_.get()));
}

std::vector<BoundOutput> IoBinding::collect_outputs() const {
  // Both lists are ours to free, and so is each value in it.
  OrtAllocator* allocator = session_->library().allocator();
  const auto release = [&](void* memory) {
    api_.check(kReinstall, kAllocatorFree, allocator, memory);
  };
  char* names = nullptr;
  size_t* lengths = nullptr;
  size_t count = 0;
  api_.check(kOutputsRemedy, kGetBoundOutputNames, binding_.get(), allocator, &names, &lengths,
             &count);
  std::vector<BoundOutput> outputs(count);
  const char* next = names;
  for (size_t index = 0; index < count; next += lengths[index++]) {
    outputs[index].name.assign(next, lengths[index]);
  }
  if (count > 0) {
    release(names);
    release(lengths);
  }
  OrtValue** raw_values = nullptr;
  api_.check(kOutputsRemedy, kGetBoundOutputValues, binding_.get(), allocator, &raw_values, &count);
  std::vector<UniqueValue> values;
  values.reserve(count);
  for (size_t index = 0; index < count; ++index) {
    values.emplace_back(raw_values[index], UniqueValue::deleter_type{api_});
  }
  if (count > 0) release(static_cast<void*>(raw_values));
  for (size_t index = 0; index < count; ++index)
    describe_value(api_, values[index].get(), outputs[index]);
  return outputs;
}

}  // namespace ftax::onnxruntime
