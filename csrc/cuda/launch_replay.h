// Issues the launches of a captured graph one driver call each: the same kernels as the graph, with
// the cost of launching them and without the cost of deciding what to launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cuda/graph_launches.h"
#include "measure/runner.h"

namespace ftax::cuda {

class LaunchReplayRunner final : public Runner {
 public:
  // `owner` keeps the graph and the memory that it uses alive. To be made with the graph's device
  // as the current one. `delay_ns` is waited before each launch, to prove what a receipt says
  // (docs/trust.md). Throws InvalidArgumentError if it is negative.
  LaunchReplayRunner(CUgraph graph, std::string name, std::shared_ptr<void> owner,
                     Carveout carveout, int64_t delay_ns = 0);

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  [[nodiscard]] std::unique_ptr<Scope> enter() override;
  void enqueue() override;
  void synchronize() override;

  [[nodiscard]] const GraphLaunches& graph() const { return graph_; }

 private:
  std::shared_ptr<void> owner_;  // destroyed after what points into it
  const Driver& driver_;
  std::string name_;
  int device_;
  GraphLaunches graph_;
  int64_t delay_ns_;
};

}  // namespace ftax::cuda
