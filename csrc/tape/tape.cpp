// The replay loop. A slot is emptied right after the call that used it last, so memory dies where
// it would have died at the latest in eager Python, and the allocator sees the same pattern.
#include "tape/tape.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "core/clock.h"
#include "core/error.h"
#include "core/statistics.h"
#include "tape/held_call.h"
#include "tape/unwritten_memory.h"

namespace ftax {
namespace {

c10::IValue make_tensor_list(const Argument& argument, const std::vector<c10::IValue>& slots) {
  c10::List<at::Tensor> list;
  list.reserve(argument.items.size());
  for (const Argument& item : argument.items) {
    list.push_back(item.slot == kNoSlot ? at::Tensor()
                                        : slots[static_cast<size_t>(item.slot)].toTensor());
  }
  return list;
}

c10::IValue make_optional_list(const Argument& argument, const std::vector<c10::IValue>& slots) {
  c10::List<std::optional<at::Tensor>> list;
  list.reserve(argument.items.size());
  for (const Argument& item : argument.items) {
    if (item.slot == kNoSlot) {
      list.push_back(std::nullopt);
    } else {
      list.push_back(slots[static_cast<size_t>(item.slot)].toTensor());
    }
  }
  return list;
}

c10::IValue materialise(const Argument& argument, const std::vector<c10::IValue>& slots) {
  switch (argument.kind) {
    case Argument::Kind::kSlot:
      return slots[static_cast<size_t>(argument.slot)];
    case Argument::Kind::kTensorList:
      return make_tensor_list(argument, slots);
    case Argument::Kind::kOptionalTensorList:
      return make_optional_list(argument, slots);
    case Argument::Kind::kConstant:
      break;
  }
  return argument.constant;
}

// What calls of a program change of the thread is afterwards as it was.
struct ReplayScope {
  explicit ReplayScope(const Program& program)
      : no_autocast(program.below_autograd ? c10::autocast_dispatch_keyset
                                           : c10::DispatchKeySet()) {}

  c10::AutoGradMode as_found{c10::GradMode::is_enabled()};
  c10::impl::ExcludeDispatchKeyGuard no_autocast;
};

// Null is any memory.
bool touches(const Overlap& overlap, const std::vector<const c10::StorageImpl*>& given) {
  return std::ranges::any_of(given, [&](const c10::StorageImpl* memory) {
    return memory == nullptr || std::ranges::count(overlap.memory, memory) > 0;
  });
}

// Null for memory that cannot be told.
std::vector<const c10::StorageImpl*> list_memory(const std::vector<Argument>& arguments,
                                                 const std::vector<c10::IValue>& slots) {
  std::vector<const c10::StorageImpl*> memory;
  for (const Argument& argument : arguments) {
    if (argument.slot != kNoSlot) {
      const at::Tensor& tensor = slots[static_cast<size_t>(argument.slot)].toTensor();
      if (tensor.defined()) memory.push_back(get_storage(tensor));
    }
    std::ranges::copy(list_memory(argument.items, slots), std::back_inserter(memory));
  }
  return memory;
}

std::string describe_strides(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.is_nested()) return " without strides";
  return c10::str(" with strides ", tensor.strides());
}

}  // namespace

Tape::Tape(Program program) : program_(std::move(program)) {
  slots_.resize(static_cast<size_t>(program_.slot_count));
  typed_.reserve(program_.calls.size());
  for (const Call& call : program_.calls) typed_.push_back(make_typed_call(call));
  std::vector<int> outside = program_.input_slots;
  for (const auto& [slot, tensor] : program_.constants) {
    slots_[static_cast<size_t>(slot)] = tensor;
    outside.push_back(slot);
  }
  for (const int slot : program_.output_slots) {
    if (std::find(outside.begin(), outside.end(), slot) == outside.end()) {
      own_outputs_.push_back(slot);
    }
  }
}

void Tape::bind_inputs(const std::vector<at::Tensor>& inputs) {
  if (inputs.size() != program_.input_slots.size()) {
    throw InvalidArgumentError("the tape has " + std::to_string(program_.input_slots.size()) +
                               " inputs, " + std::to_string(inputs.size()) + " were given");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    const InputFacts& facts = program_.input_facts[i];
    if (!facts.fit(input)) {
      throw InvalidArgumentError(
          "input " + std::to_string(i) + " is " +
          c10::str(input.scalar_type(), input.sizes(), " on ", input.device()) +
          describe_strides(input) + ", but the tape was recorded with " +
          c10::str(facts.dtype, at::IntArrayRef(facts.sizes)) + " on " + c10::str(facts.device) +
          c10::str(" with strides ", at::IntArrayRef(facts.strides)) +
          "; record a new tape for other shapes or layouts");
    }
    slots_[static_cast<size_t>(program_.input_slots[i])] = input;
  }
}

void Tape::release_inputs() {
  for (const int slot : program_.input_slots) slots_[static_cast<size_t>(slot)] = c10::IValue();
}

void Tape::prepare(size_t index) {
  if (typed_[index] != nullptr) return;
  for (const Argument& argument : program_.calls[index].arguments) {
    stack_.push_back(materialise(argument, slots_));
  }
}

void Tape::run_backward(const Backward& backward) {
  const auto tensor_in = [this](int slot) { return slots_[static_cast<size_t>(slot)].toTensor(); };
  for (const Backward::Leaf& leaf : backward.leaves) {
    if (!leaf.had_gradient) tensor_in(leaf.slot).mutable_grad() = at::Tensor();
  }
  torch::autograd::edge_list roots;
  torch::autograd::variable_list gradients;
  for (size_t i = 0; i < backward.roots.size(); ++i) {
    const at::Tensor root = tensor_in(backward.roots[i]);
    if (!root.requires_grad()) {
      throw RunnerError("nothing leads back from the loss (a torch.autograd.Function in Python?)");
    }
    roots.push_back(torch::autograd::impl::gradient_edge(root));
    gradients.push_back(tensor_in(backward.gradients[i]));
  }
  torch::autograd::Engine::get_default_engine().execute(
      roots, gradients, backward.keeps_graph, /*create_graph=*/false, /*accumulate_grad=*/true);
  for (const Backward::Leaf& leaf : backward.leaves) {
    slots_[static_cast<size_t>(leaf.gradient)] = tensor_in(leaf.slot).grad();
  }
}

void Tape::call(size_t index) {
  const bool mode = program_.calls[index].grad_mode;
  if (program_.keeps_grad_mode && mode != c10::GradMode::is_enabled()) {
    c10::GradMode::set_enabled(mode);
  }
  if (!overlaps_.empty()) wait_for_memory_of(program_.calls[index]);
  for (const int leaf : program_.calls[index].leaves) {  // which Python says without an operator
    slots_[static_cast<size_t>(leaf)].toTensor().requires_grad_();
  }
  if (program_.calls[index].backward.has_value()) {
    run_backward(program_.calls[index].backward.value());
    return;
  }
  if (typed_[index] != nullptr) {
    typed_[index]->run(slots_);
    return;
  }
  const Call& call = program_.calls[index];
  if (call.op.has_value()) {
    call.op->callBoxed(stack_);
    if (call.communicates) take_work(call);
  } else {
    const at::Tensor& target = slots_[static_cast<size_t>(call.outputs.front().slot)].toTensor();
    std::memcpy(target.mutable_data_ptr(), call.fill.const_data_ptr(), call.fill.nbytes());
  }
}

// What follows is called as it was recorded, but waits where it needs the result: never earlier
// than the call did that was recorded, so that no rank waits for one that waits for it.
void Tape::take_work(const Call& call) {
  const Work work = find_work(stack_);
  if (!work) return;
  if (call.overlaps) {
    overlaps_.push_back({work, list_memory(call.arguments, slots_)});
  } else {
    work->wait();
  }
}

void Tape::wait_for_memory_of(const Call& call) {
  if (!call.op.has_value()) return wait_for_all();
  const auto given = list_memory(call.arguments, slots_);
  std::erase_if(overlaps_, [&](const Overlap& overlap) {
    if (!touches(overlap, given)) return false;
    overlap.work->wait();
    return true;
  });
}

bool Tape::waits_before(size_t index) const {
  const Call& call = program_.calls.at(index);
  if (!call.op.has_value()) return !overlaps_.empty();
  const auto given = list_memory(call.arguments, slots_);
  return std::ranges::any_of(overlaps_,
                             [&](const Overlap& overlap) { return touches(overlap, given); });
}

void Tape::wait_for_all() {
  for (const Overlap& overlap : overlaps_) overlap.work->wait();
  overlaps_.clear();
}

void Tape::finish(size_t index) {
  const Call& call = program_.calls[index];
  if (typed_[index] == nullptr && call.op.has_value()) store_results(call);
  for (const int slot : call.releases) slots_[static_cast<size_t>(slot)] = c10::IValue();
  if (index + 1 == program_.calls.size()) wait_for_all();
}

void Tape::store_results(const Call& call) {
  const size_t first = stack_.size() - call.outputs.size();
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Output& output = call.outputs[i];
    if (output.is_list) {
      const auto list = stack_[first + i].toTensorList();
      for (size_t k = 0; k < output.items.size(); ++k) {
        if (output.items[k] == kNoSlot) continue;
        slots_[static_cast<size_t>(output.items[k])] = at::Tensor(list.get(k));
      }
    } else if (output.slot != kNoSlot) {
      slots_[static_cast<size_t>(output.slot)] = std::move(stack_[first + i]);
    }
  }
  stack_.clear();
}

void Tape::execute(size_t index) {
  prepare(index);
  call(index);
  finish(index);
}

void Tape::clear() {
  stack_.clear();
  overlaps_.clear();  // each holds the tensors that it works on
  for (const Call& call : program_.calls) {
    for (const int slot : call.releases) slots_[static_cast<size_t>(slot)] = c10::IValue();
  }
  release_outputs();
}

void Tape::rethrow(const Call& call) {
  std::string reason = "an unknown error";
  try {
    throw;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  clear();
  throw RunnerError("replaying " + call.operator_name() +
                    (call.module_path.empty() ? "" : " of module " + call.module_path) +
                    " failed: " + reason);
}

void Tape::execute_all(size_t& index) {
  const ReplayScope scope(program_);
  for (; index < program_.calls.size(); ++index) execute(index);
  for (const int leaf : program_.bare) {
    slots_[static_cast<size_t>(leaf)].toTensor().mutable_grad() = at::Tensor();
  }
}

void Tape::run() {
  size_t index = 0;
  try {
    execute_all(index);
  } catch (...) {
    rethrow(program_.calls[index]);
  }
}

void Tape::run_as_eager() {
  size_t index = 0;
  try {
    execute_all(index);
  } catch (...) {
    clear();
    throw;
  }
}

void Tape::run_calls(size_t first, size_t last) {
  if (last > program_.calls.size()) {
    throw InvalidArgumentError("the tape has " + std::to_string(program_.calls.size()) +
                               " calls; there is no call " + std::to_string(last - 1));
  }
  const ReplayScope scope(program_);
  size_t index = first;
  try {
    for (; index < last; ++index) execute(index);
  } catch (...) {
    rethrow(program_.calls[index]);
  }
}

HeldCall Tape::hold_call(size_t index) const {
  return {program_.calls.at(index), make_arguments(index)};
}

std::vector<c10::IValue> Tape::make_arguments(size_t index) const {
  std::vector<c10::IValue> arguments;
  for (const Argument& argument : program_.calls.at(index).arguments) {
    arguments.push_back(materialise(argument, slots_));
  }
  return arguments;
}

std::vector<size_t> Tape::typed_calls() const {
  std::vector<size_t> places;
  for (size_t i = 0; i < typed_.size(); ++i) {
    if (typed_[i] != nullptr) places.push_back(i);
  }
  return places;
}

std::vector<at::Tensor> Tape::outputs() const {
  std::vector<at::Tensor> result;
  for (const int slot : program_.output_slots) {
    const c10::IValue& value = slots_[static_cast<size_t>(slot)];
    if (!value.isTensor()) throw InvalidArgumentError("the tape has no outputs yet; run it first");
    result.push_back(value.toTensor());
  }
  return result;
}

void Tape::release_outputs() {
  for (const int slot : own_outputs_) slots_[static_cast<size_t>(slot)] = c10::IValue();
}

std::vector<StepCost> Tape::profile(int repetitions, const std::function<void()>& prepare_run) {
  if (repetitions < 1) {
    throw InvalidArgumentError("repetitions is " + std::to_string(repetitions) +
                               "; give 1 or more");
  }
  const ReplayScope scope(program_);
  const size_t count = program_.calls.size();
  std::vector<std::vector<int64_t>> build(count), calls(count), release(count);
  size_t i = 0;
  try {
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      if (prepare_run) prepare_run();
      for (i = 0; i < count; ++i) {
        const int64_t start = now_ns();
        prepare(i);
        const int64_t built = now_ns();
        call(i);
        const int64_t called = now_ns();
        finish(i);
        const int64_t done = now_ns();
        build[i].push_back(built - start);
        calls[i].push_back(called - built);
        release[i].push_back(done - called);
      }
      release_outputs();
    }
  } catch (...) {
    rethrow(program_.calls[i]);
  }
  std::vector<StepCost> costs;
  for (i = 0; i < count; ++i) {
    costs.push_back(
        {compute_median(build[i]), compute_median(calls[i]), compute_median(release[i])});
  }
  return costs;
}

}  // namespace ftax
