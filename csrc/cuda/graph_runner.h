// Launches instantiated CUDA graphs: one call for all the kernels of an inference, or for those
// between two collectives.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "measure/runner.h"

namespace ftax::cuda {

class GraphRunner final : public Runner {
 public:
  // A graph, or what is called between two.
  using Piece = std::variant<cudaGraphExec_t, std::function<void()>>;

  // `owner` keeps the graphs and the memory that they use alive.
  GraphRunner(std::vector<Piece> pieces, std::string name, std::shared_ptr<void> owner);

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  void enqueue() override;
  void synchronize() override;

 private:
  std::shared_ptr<void> owner_;
  std::vector<Piece> pieces_;
  std::string name_;
};

}  // namespace ftax::cuda
