// What the smallest pieces of a CUDA inference cost on this machine, beside the empty kernel: an
// empty graph, a pair of events, a wait for nothing, a burst of launches. All of them use torch's
// current stream, and all constructors throw UnavailableError without a usable CUDA device.
#pragma once

#include <string>
#include <utility>

#include "cuda/handles.h"
#include "measure/runner.h"

namespace ftax::cuda {

class FloorRunner : public Runner {
 public:
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  void synchronize() override;

 protected:
  explicit FloorRunner(std::string name);

 private:
  std::string name_;
};

// Enqueues nothing: what is left is the wait for an idle stream.
class SynchronizeRunner final : public FloorRunner {
 public:
  SynchronizeRunner() : FloorRunner("synchronise") {}
  void enqueue() override {}
};

// Records two events that time, and waits for the second.
class EventPairRunner final : public FloorRunner {
 public:
  EventPairRunner();
  void enqueue() override;
  void synchronize() override;

 private:
  UniqueEvent first_;
  UniqueEvent second_;
};

// Launches a graph of one empty kernel.
class NullGraphRunner final : public FloorRunner {
 public:
  NullGraphRunner();
  void enqueue() override;

 private:
  UniqueGraphExec graph_;
};

// Launches `count` empty kernels, one after the other.
class LaunchBurstRunner final : public FloorRunner {
 public:
  // Throws InvalidArgumentError unless count >= 1.
  explicit LaunchBurstRunner(int count);
  void enqueue() override;

 private:
  int count_;
};

}  // namespace ftax::cuda
