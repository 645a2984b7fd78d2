// Launches an instantiated CUDA graph: one call for all the kernels of an inference.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "measure/runner.h"

namespace ftax::cuda {

class GraphRunner final : public Runner {
 public:
  // `owner` keeps the graph and the memory that it uses alive.
  GraphRunner(cudaGraphExec_t graph, std::string name, std::shared_ptr<void> owner);

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  void enqueue() override;
  void synchronize() override;

 private:
  std::shared_ptr<void> owner_;
  cudaGraphExec_t graph_;
  std::string name_;
};

}  // namespace ftax::cuda
