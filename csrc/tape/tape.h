// Replays a recorded program through torch's dispatcher, with no Python. Calls whose signature is
// known are typed, the others boxed: both enter the dispatcher at the same point. What a call costs
// beside a hand-written one is measured by bench/tape.py.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tape/held_call.h"
#include "tape/program.h"
#include "tape/typed_call.h"

namespace ftax {

// Host time of one call: medians over repetitions, ns, each including one clock read.
struct StepCost {
  double build_ns;    // arguments onto the stack; nothing to do for a typed call
  double call_ns;     // the operator call itself
  double release_ns;  // results into slots, dead tensors freed
};

// A collective that was called and not waited for, and what memory it may still read or write.
struct Overlap {
  Work work;
  std::vector<const c10::StorageImpl*> memory;
};

// Not for use by two threads at once. All of `run`, `run_calls` and `profile` expect the caller to
// have set the grad mode.
class Tape {
 public:
  explicit Tape(Program program);

  // Same number, dtypes, devices and shapes as the recorded inputs; throws InvalidArgumentError.
  void bind_inputs(const std::vector<at::Tensor>& inputs);

  // Lets go of the inputs: until others are bound, a run that needs them fails.
  void release_inputs();

  // One inference; the outputs stay in their slots until `release_outputs` or the next run.
  // A failing operator throws RunnerError that names it and its module.
  void run();
  // The same; what an operator throws passes as it is.
  void run_as_eager();
  [[nodiscard]] std::vector<at::Tensor> outputs() const;
  void release_outputs();

  // Runs the calls from `first` to before `last`. Range after range, this is `run` in slow motion.
  void run_calls(size_t first, size_t last);
  // Whether this call, which is the next one, waits for a collective that was called before.
  [[nodiscard]] bool waits_before(size_t index) const;
  // This call with the arguments that it would get now.
  [[nodiscard]] HeldCall hold_call(size_t index) const;
  [[nodiscard]] std::vector<c10::IValue> make_arguments(size_t index) const;

  // `prepare_run` is called before each repetition, outside all times.
  [[nodiscard]] std::vector<StepCost> profile(int repetitions,
                                              const std::function<void()>& prepare_run = {});

  [[nodiscard]] const Program& program() const { return program_; }
  // Those made through the operator's C++ signature; the others are boxed.
  [[nodiscard]] std::vector<size_t> typed_calls() const;
  [[nodiscard]] const c10::IValue& slot(int index) const {
    return slots_[static_cast<size_t>(index)];
  }

 private:
  void prepare(size_t index);
  void call(size_t index);
  void run_backward(const Backward& backward);
  void finish(size_t index);
  void execute(size_t index);
  void execute_all(size_t& index);  // which is then the call that failed
  void store_results(const Call& call);
  void take_work(const Call& call);
  void wait_for_memory_of(const Call& call);
  void wait_for_all();
  void clear();
  [[noreturn]] void rethrow(const Call& call);

  Program program_;
  std::vector<std::unique_ptr<TypedCall>> typed_;  // one a call; nullptr: boxed
  std::vector<int> own_outputs_;                   // outputs that are neither inputs nor constants
  std::vector<c10::IValue> slots_;
  std::vector<c10::IValue> stack_;
  std::vector<Overlap> overlaps_;
};

}  // namespace ftax
