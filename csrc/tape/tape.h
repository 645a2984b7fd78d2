// Replays a recorded program through torch's dispatcher, with no Python. Calls are boxed: one path
// for every operator there is. What that costs beside typed calls is measured by bench/tape.py.
#pragma once

#include <cstdint>
#include <vector>

#include "tape/program.h"

namespace ftax {

// Host time of one step: medians over repetitions, ns, each including one clock read.
struct StepCost {
  double build_ns;    // arguments onto the stack
  double call_ns;     // the operator call itself
  double release_ns;  // results into slots, dead tensors freed
};

// Not for use by two threads at once. All of `run`, `step` and `profile` expect the caller to have
// set the grad mode.
class Tape {
 public:
  explicit Tape(Program program);

  // Same number, dtypes, devices and shapes as the recorded inputs; throws InvalidArgumentError.
  void bind_inputs(const std::vector<at::Tensor>& inputs);

  // One inference; the outputs stay in their slots until `release_outputs` or the next run.
  // A failing operator throws RunnerError that names it and its module.
  void run();
  [[nodiscard]] std::vector<at::Tensor> outputs() const;
  void release_outputs();

  // Runs one step. In order from 0 to size() - 1, this is `run` in slow motion.
  void step(size_t index);
  [[nodiscard]] std::vector<c10::IValue> make_arguments(size_t index) const;

  [[nodiscard]] std::vector<StepCost> profile(int repetitions);

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const c10::IValue& slot(int index) const {
    return slots_[static_cast<size_t>(index)];
  }

 private:
  void push_argument(const Argument& argument);
  void push_arguments(const Step& step);
  void call(const Step& step);
  void finish(const Step& step);
  void execute(const Step& step);
  void clear();
  [[noreturn]] void rethrow(const Step& step);

  Program program_;
  std::vector<int> own_outputs_;  // outputs that are neither inputs nor constants
  std::vector<c10::IValue> slots_;
  std::vector<c10::IValue> stack_;
};

}  // namespace ftax
