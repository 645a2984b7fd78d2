// The model goes the way of every other, through Session and IoBinding, so that what is checked is
// what is called. It tells inputs from outputs by their number, names, types and shapes. Slots of
// CUDA are not called here: they stand between slots that are, in a table that is only appended to.
#include "onnxruntime/slot_check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "onnxruntime/element_type.h"
#include "onnxruntime/io_binding.h"
#include "onnxruntime/session.h"

namespace ftax::onnxruntime {
namespace {

// above = Greater(x, w): bool["rows", 3] of float["rows", 3] and float[3]; opset 13, IR 8.
constexpr std::string_view kModel(
    "\x08\x08:b\n\x16\n\x01x\n\x01w\x12\x05"
    "above\"\x07Greater\x12\x01gZ\x17\n\x01x\x12\x12\n\x10\x08\x01\x12\x0c\n\x06\x12\x04rows\n"
    "\x02\x08\x03Z\x0f\n\x01w\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x03"
    "b\x1b\n\x05"
    "above\x12\x12\n\x10\x08\t\x12\x0c\n\x06\x12\x04rows\n\x02\x08\x03"
    "B\x04\n\x00\x10\r",
    108);

// A file in memory. CreateSession takes a path.
class ModelFile {
 public:
  ModelFile() : descriptor_(memfd_create("ftax", MFD_CLOEXEC)) {
    if (write(descriptor_, kModel.data(), kModel.size()) != static_cast<ssize_t>(kModel.size())) {
      throw RunnerError("no file in memory could be written");
    }
  }
  ~ModelFile() { close(descriptor_); }
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void expect(bool is_so, const char* what) {
  if (!is_so) throw RunnerError(std::string("wrong: ") + what);
}

bool is(const ValueInfo& value, const std::string& name, const char* type, size_t rank) {
  return value.name == name && find_element_type(value.element_type).name == std::string(type) &&
         value.shape.size() == rank && value.shape.back().size == 3 &&
         (rank == 1 || (value.shape[0].size == -1 && value.shape[0].symbol == "rows"));
}

// A setter has no answer but to refuse what cannot be.
template <typename Option>
void expect_refusal(const Api& api, const Slot<OrtStatus*(OrtSessionOptions*, Option)>& slot,
                    const char* named) {
  const auto options = api.make<UniqueSessionOptions>(kReinstall, kCreateSessionOptions);
  OrtStatus* status = api.call(slot, options.get(), static_cast<Option>(-1));
  expect(status != nullptr && api.take_message(status).find(named) != std::string::npos, slot.name);
}

void check_answers(const Library& library) {
  expect_refusal(library.api(), kSetSessionExecutionMode, "execution_mode");
  expect_refusal(library.api(), kSetSessionGraphOptimizationLevel, "graph_optimization_level");
  expect(library.build_info().find("build type") != std::string::npos, "facts of the build");

  const ModelFile file;
  SessionOptions options;
  options.model_path = file.path();
  const auto session = std::make_shared<Session>(library, options);
  const std::vector<ValueInfo>& inputs = session->inputs();
  const std::vector<ValueInfo>& outputs = session->outputs();
  expect(inputs.size() == 2 && is(inputs[0], "x", "float32", 2) && is(inputs[1], "w", "float32", 1),
         "a model's inputs");
  expect(outputs.size() == 1 && is(outputs[0], "above", "bool", 2), "a model's outputs");
  if (library.api_version() >= kAssignmentApiVersion) {
    const Session::NodeCounts expected = {{"CPUExecutionProvider", {{"Greater", 1}}}};
    expect(session->count_nodes() == expected, "a model's nodes");
  }

  float x[] = {1, 2, 3, 4, 5, 6};
  float w[] = {3, 3, 3};
  IoBinding binding(session);
  binding.bind_input("x", {x, sizeof(x), {2, 3}, "float32"});
  binding.bind_input("w", {w, sizeof(w), {3}, "float32"});
  binding.bind_output("above", Device::kCpu);
  binding.run();
  const std::vector<BoundOutput> found = binding.collect_outputs();
  expect(found.size() == 1 && found[0].name == "above" && found[0].element_type == "bool" &&
             found[0].shape == std::vector<int64_t>{2, 3} && found[0].memory == "Cpu",
         "what describes a result");
  const bool* above = static_cast<const bool*>(found[0].data);
  expect(std::vector<bool>(above, above + 6) ==
             std::vector<bool>{false, false, false, true, true, true},
         "results");
}

}  // namespace

void check_slots(const Library& library) {
  try {
    check_answers(library);
  } catch (const Error& error) {
    throw UnavailableError("ONNX Runtime " + library.version() + " at " + library.path() +
                           " does not answer a known model as its C interface should (" +
                           error.what() + "); install one from 1." +
                           std::to_string(kRequiredApiVersion) + " to 1." +
                           std::to_string(kTestedApiVersion) + ", which ftax was tested with");
  }
}

}  // namespace ftax::onnxruntime
