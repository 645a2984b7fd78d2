// A loaded ONNX model, run node after node. Threads do not spin: ONNX Runtime's default lets an
// idle pool burn its cores between requests, which slows the runtime that is measured next.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "onnxruntime/api.h"
#include "onnxruntime/library.h"

namespace ftax::onnxruntime {

enum class Provider { kCpu, kCuda };

// Throw InvalidArgumentError, listing what is right, for any other text.
[[nodiscard]] GraphOptimization parse_optimization(const std::string& text);  // disable ... all
[[nodiscard]] Provider parse_provider(const std::string& text);               // cpu, cuda

struct SessionOptions {
  std::string model_path;
  GraphOptimization optimization = GraphOptimization::kAll;
  int intra_op_threads = 1;  // 0: ONNX Runtime's default, one a physical core, each pinned
  Provider provider = Provider::kCpu;
  std::map<std::string, std::string> provider_options;  // CUDA only
  int device_id = 0;                                    // CUDA only
  void* user_compute_stream = nullptr;                  // CUDA only: a cudaStream_t; null: its own
};

struct Dimension {
  int64_t size;        // -1 if it is not fixed
  std::string symbol;  // its name if it has one
};

struct ValueInfo {
  std::string name;
  int element_type;  // find_element_type() knows it
  std::vector<Dimension> shape;
};

class Session {
 public:
  // Throws InvalidArgumentError for a file or an option that is wrong, UnavailableError for a
  // provider that this library or machine lacks, UnsupportedError for a model whose inputs or
  // outputs are not all tensors.
  Session(const Library& library, const SessionOptions& options);

  [[nodiscard]] const Library& library() const { return library_; }
  [[nodiscard]] OrtSession* handle() const { return session_.get(); }
  [[nodiscard]] const SessionOptions& options() const { return options_; }
  [[nodiscard]] const std::vector<ValueInfo>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<ValueInfo>& outputs() const { return outputs_; }

  // Nodes of the graph by execution provider and operator type, as they were assigned (before the
  // fusions of a provider merge some). Empty if the library is older than 1.24, which cannot tell.
  using NodeCounts = std::map<std::string, std::map<std::string, size_t>>;
  [[nodiscard]] NodeCounts count_nodes() const;

 private:
  const Library& library_;
  SessionOptions options_;
  UniqueSession session_;
  std::vector<ValueInfo> inputs_;
  std::vector<ValueInfo> outputs_;
};

}  // namespace ftax::onnxruntime
