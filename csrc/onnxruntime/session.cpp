// Options, creation and metadata of a session.
#include "onnxruntime/session.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"

namespace ftax::onnxruntime {
namespace {

constexpr std::pair<const char*, GraphOptimization> kOptimizations[] = {
    {"disable", GraphOptimization::kDisable},   {"basic", GraphOptimization::kBasic},
    {"extended", GraphOptimization::kExtended}, {"layout", GraphOptimization::kLayout},
    {"all", GraphOptimization::kAll},
};

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void append_cuda(const Library& library, OrtSessionOptions* session_options,
                 const SessionOptions& options) {
  const std::vector<std::string> known = library.collect_providers();
  if (std::find(known.begin(), known.end(), "CUDAExecutionProvider") == known.end()) {
    throw UnavailableError("provider cuda is not in ONNX Runtime " + library.version() + " at " +
                           library.path() + ", which has " + join(known) +
                           "; `pip install onnxruntime-gpu` in place of onnxruntime");
  }
  const Api& api = library.api();
  UniqueCudaOptions cuda = api.make<UniqueCudaOptions>(kReinstall, kCreateCUDAProviderOptions);
  const std::string device_id = std::to_string(options.device_id);
  std::vector<const char*> keys{"device_id"};
  std::vector<const char*> values{device_id.c_str()};
  for (const auto& [key, value] : options.provider_options) {
    keys.push_back(key.c_str());
    values.push_back(value.c_str());
  }
  api.check("see ONNX Runtime's page on the CUDA execution provider for its options",
            kUpdateCUDAProviderOptions, cuda.get(), keys.data(), values.data(), keys.size());
  if (options.user_compute_stream != nullptr) {
    api.check(kReinstall, kUpdateCUDAProviderOptionsWithValue, cuda.get(), "user_compute_stream",
              options.user_compute_stream);
  }
  if (OrtStatus* status =
          api.call(kSessionOptionsAppendExecutionProvider_CUDA_V2, session_options, cuda.get())) {
    throw UnavailableError(
        "ONNX Runtime's CUDA provider could not be loaded: " + api.take_message(status) +
        "; it needs a CUDA device and the CUDA and cuDNN libraries of its release, such as those "
        "of a torch for the same CUDA");
  }
}

void set_config(const Library& library, OrtSessionOptions* session_options) {
  std::map<std::string, std::string> entries = {{"session.intra_op.allow_spinning", "0"}};
  if (library.api_version() >= kAssignmentApiVersion) {
    entries.emplace("session.record_ep_graph_assignment_info", "1");
  }
  for (const auto& [key, value] : entries) {
    library.api().check("see onnxruntime_session_options_config_keys.h for the keys",
                        kAddSessionConfigEntry, session_options, key.c_str(), value.c_str());
  }
}

UniqueSessionOptions make_options(const Library& library, const SessionOptions& options) {
  if (options.intra_op_threads < 0) {
    throw InvalidArgumentError("intra_op_threads is " + std::to_string(options.intra_op_threads) +
                               "; it has to be at least 1, or 0 for ONNX Runtime's default");
  }
  if (options.provider == Provider::kCpu &&
      (!options.provider_options.empty() || options.user_compute_stream != nullptr)) {
    throw InvalidArgumentError(
        "provider_options and user_compute_stream are for provider cuda; leave them out for cpu");
  }
  const Api& api = library.api();
  UniqueSessionOptions handle = api.make<UniqueSessionOptions>(kReinstall, kCreateSessionOptions);
  api.check("`layout` needs onnxruntime 1.21 or newer", kSetSessionGraphOptimizationLevel,
            handle.get(), options.optimization);
  api.check(kReinstall, kSetIntraOpNumThreads, handle.get(), options.intra_op_threads);
  set_config(library, handle.get());
  if (options.provider == Provider::kCuda) append_cuda(library, handle.get(), options);
  return handle;
}

std::vector<Dimension> collect_shape(const Api& api, const OrtTensorTypeAndShapeInfo* info) {
  size_t rank = 0;
  api.check(kReinstall, kGetDimensionsCount, info, &rank);
  std::vector<int64_t> sizes(rank);
  std::vector<const char*> symbols(rank);
  api.check(kReinstall, kGetDimensions, info, sizes.data(), rank);
  api.check(kReinstall, kGetSymbolicDimensions, info, symbols.data(), rank);
  std::vector<Dimension> shape;
  shape.reserve(rank);
  for (size_t axis = 0; axis < rank; ++axis) shape.push_back({sizes[axis], symbols[axis]});
  return shape;
}

// The two kinds differ only in the slots that are asked.
struct ValueSlots {
  decltype(kSessionGetInputCount) count;
  decltype(kSessionGetInputName) name;
  decltype(kSessionGetInputTypeInfo) type;
};
constexpr ValueSlots kInputSlots{kSessionGetInputCount, kSessionGetInputName,
                                 kSessionGetInputTypeInfo};
constexpr ValueSlots kOutputSlots{kSessionGetOutputCount, kSessionGetOutputName,
                                  kSessionGetOutputTypeInfo};

std::vector<ValueInfo> collect_values(const Library& library, const OrtSession* session,
                                      const ValueSlots& slots) {
  const Api& api = library.api();
  size_t count = 0;
  api.check(kReinstall, slots.count, session, &count);
  std::vector<ValueInfo> values;
  for (size_t index = 0; index < count; ++index) {
    char* raw_name = nullptr;
    api.check(kReinstall, slots.name, session, index, library.allocator(), &raw_name);
    ValueInfo value{raw_name, 0, {}};
    api.check(kReinstall, kAllocatorFree, library.allocator(), static_cast<void*>(raw_name));
    const UniqueTypeInfo type = api.make<UniqueTypeInfo>(kReinstall, slots.type, session, index);
    ValueKind kind = ValueKind::kUnknown;
    api.check(kReinstall, kGetOnnxTypeFromTypeInfo, type.get(), &kind);
    if (kind != ValueKind::kTensor) {
      throw UnsupportedError("value '" + value.name +
                             "' of the model is a sequence, a map or optional, not a tensor; give "
                             "the model tensors only at its edges");
    }
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;
    api.check(kReinstall, kCastTypeInfoToTensorInfo, type.get(), &tensor);
    api.check(kReinstall, kGetTensorElementType, tensor, &value.element_type);
    value.shape = collect_shape(api, tensor);
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace

GraphOptimization parse_optimization(const std::string& text) {
  std::vector<std::string> known;
  for (const auto& [name, level] : kOptimizations) {
    if (text == name) return level;
    known.emplace_back(name);
  }
  throw InvalidArgumentError("optimization is '" + text + "'; use one of " + join(known));
}

Provider parse_provider(const std::string& text) {
  if (text == "cpu") return Provider::kCpu;
  if (text == "cuda") return Provider::kCuda;
  throw InvalidArgumentError("provider is '" + text + "'; use one of cpu, cuda");
}

Session::Session(const Library& library, const SessionOptions& options)
    : library_(library), options_(options) {
  const UniqueSessionOptions handle = make_options(library, options);
  if (!std::filesystem::is_regular_file(options.model_path)) {
    throw InvalidArgumentError("there is no ONNX file at " + options.model_path);
  }
  const std::string remedy = "in loading " + options.model_path +
                             "; export the model again with the opset of this onnxruntime";
  try {
    session_ = library.api().make<UniqueSession>(remedy, kCreateSession, library.env(),
                                                 options.model_path.c_str(), handle.get());
  } catch (const RunnerError& error) {
    // Versions differ in the code that they give a file which they cannot read.
    throw InvalidArgumentError(error.what());
  }
  inputs_ = collect_values(library, session_.get(), kInputSlots);
  outputs_ = collect_values(library, session_.get(), kOutputSlots);
}

Session::NodeCounts Session::count_nodes() const {
  NodeCounts counts;
  if (library_.api_version() < kAssignmentApiVersion) return counts;
  const Api& api = library_.api();
  const OrtEpAssignedSubgraph* const* subgraphs = nullptr;  // owned by the session, as all below
  size_t subgraph_count = 0;
  api.check("leave session.record_ep_graph_assignment_info at 1", kSession_GetEpGraphAssignmentInfo,
            session_.get(), &subgraphs, &subgraph_count);
  for (size_t index = 0; index < subgraph_count; ++index) {
    const char* provider = nullptr;
    const OrtEpAssignedNode* const* nodes = nullptr;
    size_t node_count = 0;
    api.check(kReinstall, kEpAssignedSubgraph_GetEpName, subgraphs[index], &provider);
    api.check(kReinstall, kEpAssignedSubgraph_GetNodes, subgraphs[index], &nodes, &node_count);
    for (size_t place = 0; place < node_count; ++place) {
      const char* type = nullptr;
      api.check(kReinstall, kEpAssignedNode_GetOperatorType, nodes[place], &type);
      ++counts[provider][type];
    }
  }
  return counts;
}

}  // namespace ftax::onnxruntime
