// What becomes of an operator call: its arguments are turned into slots and constants before it
// runs, its results into slots after it. See Note [Memory that Python fills] in unwritten_memory.h.
#include "tape/recorder.h"

#include <ATen/core/class_type.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "tape/gradient_leaves.h"
#include "tape/lifetimes.h"
#include "tape/own_generators.h"
#include "tape/written_arguments.h"

namespace ftax {
namespace {

constexpr size_t kHeldTwice = 2;  // a constant: by the program, and by the recorder

// Whether a number that a call returned is one of a tensor's sizes, which guards look at. Attention
// returns the lengths that it was given: torch declares such numbers as SymInt. In operators of
// others, any number may be declared so.
bool is_size(const c10::OperatorHandle& op, const c10::Argument& returned) {
  if (UnwrittenMemory::reads_shapes_only(op)) return true;
  return returned.real_type()->kind() == c10::TypeKind::SymIntType &&
         op.operator_name().name.starts_with("aten::");
}

bool is_work(const c10::Argument& returned) {
  const auto type = returned.real_type()->cast<c10::ClassType>();
  return type != nullptr && type->name().has_value() &&
         type->name()->qualifiedName() == "__torch__.torch.classes.c10d.Work";
}

bool has_lists_of_lists(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    const auto list = argument.type()->cast<c10::ListType>();
    return list != nullptr && list->getElementType()->kind() == c10::TypeKind::ListType;
  });
}

// Collectives write what they are given to receive, and none of their schemas says so; a barrier is
// given a tensor to choose a device by.
bool is_received(const c10::OperatorHandle& op, const c10::Argument& argument) {
  const std::string& name = op.operator_name().name;
  return name == "c10d::barrier" ||
         (name.starts_with("c10d::") && argument.name().starts_with("output"));
}

bool is_waited_for(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& stack) {
  const std::optional<int> place = schema.argumentIndexWithName("async_op");
  if (!place.has_value()) return false;
  return !stack.at(stack.size() - schema.arguments().size() + static_cast<size_t>(*place)).toBool();
}

}  // namespace

Recorder::Recorder(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& weights,
                   c10::Device device, Level level)
    : device_(device),
      level_(level),
      state_(ThreadState::capture(device)),
      slots_(level == Level::kBelowAutograd) {
  program_.keeps_grad_mode = level_ != Level::kAboveAutograd;
  program_.below_autograd = level_ == Level::kBelowAutograd;
  program_.inference_mode = state_.inference || level_ == Level::kBelowAutograd;
  for (const at::Tensor& input : inputs) {
    program_.input_slots.push_back(slots_.add_input(input));
    program_.input_facts.push_back(InputFacts::of(input));
  }
  for (const at::Tensor& weight : weights) slots_.add_weight(weight);
}

void Recorder::fail(const std::string& what) noexcept {
  if (is_closed_ || !failure_.empty()) return;
  failure_ = "cannot tape this model: " + what;
  if (!operator_name_.empty()) failure_ += ", at operator " + operator_name_;
  failure_ += module_path_.empty() ? " in the model's own forward" : " in module " + module_path_;
}

Argument Recorder::convert_tensor(const at::Tensor& tensor) {
  Argument argument;
  if (tensor.defined()) {
    argument.kind = Argument::Kind::kSlot;
    argument.slot = slots_.find_or_capture(tensor);
  } else {
    argument.constant = c10::IValue(tensor);
  }
  return argument;
}

Argument Recorder::convert(const c10::IValue& value) {
  if (value.isTensor()) return convert_tensor(value.toTensor());
  Argument argument;
  if (value.isTensorList()) {
    argument.kind = Argument::Kind::kTensorList;
    for (const at::Tensor& item : value.toTensorVector()) {
      argument.items.push_back(convert_tensor(item));
    }
  } else if (value.isOptionalTensorList()) {
    argument.kind = Argument::Kind::kOptionalTensorList;
    for (const std::optional<at::Tensor>& item : value.toOptionalTensorVector()) {
      argument.items.push_back(item.has_value() ? convert_tensor(*item) : Argument{});
    }
  } else if (!value.isGenerator() || !OwnGenerators::has(value.toGenerator())) {
    argument.constant = value;
  }
  return argument;
}

void Recorder::note_access(Pending& pending, const at::Tensor& tensor, bool is_written,
                           bool is_read) {
  if (!tensor.defined()) return;
  const int slot = slots_.at(tensor);
  c10::StorageImpl* storage = get_storage(tensor);
  pending.given.emplace_back(slot, storage);
  if (level_ == Level::kWithAutograd && !slots_.is_outside(slot) && tensor.is_leaf() &&
      tensor.requires_grad()) {
    pending.call.leaves.push_back(slot);
  }
  // `detach_`, with which torch.tensor ends, writes no memory, though its schema says so.
  if (is_written && pending.call.op.value().operator_name().name != "aten::detach_") {
    pending.call.written.push_back(slot);
    pending.mutates_outside |= slots_.is_outside(tensor);
  }
  if (!is_read) {
    unwritten_.erase(tensor);
  } else if (const at::Tensor contents = unwritten_.copy(tensor); contents.defined()) {
    pending.fills.emplace_back(tensor, contents);
  } else if (!tensor.is_cpu() && tensor.numel() > 0 && unwritten_.contains(tensor)) {
    pending.unwritten.push_back(tensor);
  }
}

void Recorder::convert_arguments(Pending& pending, const std::vector<c10::IValue>& stack) {
  const auto& schema = pending.call.op.value().schema();
  const c10::ArrayRef<c10::IValue> values =
      c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - schema.arguments().size());
  const std::vector<bool> written = find_written(pending.call.op.value(), values);
  for (size_t i = 0; i < values.size(); ++i) {
    const c10::IValue& value = values[i];
    pending.call.arguments.push_back(convert(value));
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    // Statistics are, before they move.
    const bool is_read = (alias == nullptr || !alias->isWrite()) &&
                         !is_received(pending.call.op.value(), schema.arguments()[i]);
    const auto note = [&](const at::Tensor& tensor) {
      note_access(pending, tensor, written[i], is_read);
    };
    if (value.isTensor()) note(value.toTensor());
    if (value.isTensorList()) std::ranges::for_each(value.toTensorVector(), note);
    if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& item : value.toOptionalTensorVector()) {
        if (item.has_value()) note(*item);
      }
    }
  }
}

std::optional<Recorder::Pending> Recorder::begin(const c10::OperatorHandle& op,
                                                 const std::vector<c10::IValue>& stack,
                                                 bool hidden) noexcept {
  const std::scoped_lock lock(mutex_);
  if (is_closed_ || !failure_.empty() || backward_.has_value()) return std::nullopt;
  try {
    Pending pending;
    pending.call.op = op;
    pending.call.module_path = module_path_;
    pending.call.hidden = hidden;
    operator_name_ = pending.call.operator_name();
    ThreadState now = ThreadState::capture(device_);
    pending.call.grad_mode = now.grad;
    // Each call keeps its own grad mode where it does not decide whether results have a graph.
    if (level_ == Level::kWithAutograd || (now.grad != state_.grad && !requires_grad(stack))) {
      program_.keeps_grad_mode = true;
      now.grad = state_.grad;
    }
    const std::string change = level_ == Level::kBelowAutograd
                                   ? state_.describe_change_below_autograd(now)
                                   : state_.describe_change(now);
    if (!change.empty()) throw UnsupportedError("its forward changes " + change);
    if (has_lists_of_lists(op.schema())) {
      throw UnsupportedError("it is given a list of lists of tensors");
    }
    const auto& returns = op.schema().returns();
    pending.call.communicates = !returns.empty() && is_work(returns.back());
    pending.call.overlaps = pending.call.communicates && !is_waited_for(op.schema(), stack);
    convert_arguments(pending, stack);
    return pending;
  } catch (const std::exception& error) {
    fail(error.what());
    return std::nullopt;
  }
}

// See Note [Memory that Python fills].
void Recorder::commit_fills(Pending& pending, const std::vector<c10::IValue>& stack) {
  const bool is_lift = pending.call.op.value().operator_name().name == "aten::lift_fresh";
  const c10::IValue& result = stack.back();
  for (const auto& [tensor, contents] : pending.fills) {
    const bool is_view = result.isTensor() && result.toTensor().defined() &&
                         get_storage(result.toTensor()) == get_storage(tensor);
    if (is_view && !is_lift) continue;
    if (!unwritten_.erase(tensor)) continue;  // given to this call twice
    Call fill;
    fill.fill = contents;
    fill.outputs.push_back({slots_.at(tensor), false, {}});
    fill.module_path = pending.call.module_path;
    program_.calls.push_back(std::move(fill));
  }
}

Output Recorder::add_output(const c10::IValue& value) {
  const auto slot_of = [this](const at::Tensor& tensor) {
    if (!tensor.defined()) return kNoSlot;
    const int known = slots_.find_same(tensor);
    return known != kNoSlot ? known : slots_.add(tensor);
  };
  Output output;
  if (value.isTensor()) {
    output.slot = slot_of(value.toTensor());
  } else if (value.isTensorList()) {
    output.is_list = true;
    for (const at::Tensor& item : value.toTensorVector()) output.items.push_back(slot_of(item));
  }
  return output;
}

// A kernel that Triton or an extension launches itself is no call, and a replay that leaves it out
// may still find its last results in memory that the allocator hands out again.
void Recorder::refuse_unwritten(const Pending& pending,
                                const std::vector<c10::IValue>& stack) const {
  if (UnwrittenMemory::reads_shapes_only(pending.call.op.value())) return;
  for (const at::Tensor& tensor : pending.unwritten) {
    const bool is_view = !stack.empty() && stack.back().isTensor() &&
                         stack.back().toTensor().defined() &&
                         get_storage(stack.back().toTensor()) == get_storage(tensor);
    if (is_view) continue;
    throw UnsupportedError(
        "it reads memory of the GPU that no operator call wrote (a Triton kernel or an extension "
        "that is launched directly?); register what fills it as an operator, for example with "
        "torch's triton_op");
  }
}

// Many operators return what they were given, or a view of it, and their schema says nothing of it.
void Recorder::note_shared(Pending& pending, const at::Tensor& result) {
  if (!result.defined()) return;
  const c10::StorageImpl* storage = get_storage(result);
  for (const auto& [slot, memory] : pending.given) {
    std::vector<int>& shared = pending.call.shared;
    const bool may_share = memory == nullptr || storage == nullptr || memory == storage;
    if (may_share && !std::ranges::count(shared, slot)) shared.push_back(slot);
  }
}

void Recorder::end(std::optional<Pending> pending, const std::vector<c10::IValue>& stack) noexcept {
  const std::scoped_lock lock(mutex_);
  if (is_closed_ || !pending.has_value() || !failure_.empty()) return;
  try {
    const auto& returns = pending->call.op.value().schema().returns();
    const size_t first = stack.size() - returns.size();
    refuse_unwritten(*pending, stack);
    if (!returns.empty()) commit_fills(*pending, stack);
    const int index = static_cast<int>(program_.calls.size());
    for (size_t i = 0; i < returns.size(); ++i) {
      const c10::IValue& value = stack[first + i];
      pending->call.outputs.push_back(add_output(value));
      if (value.isTensor()) note_shared(*pending, value.toTensor());
      if (value.isTensorList()) {
        for (const at::Tensor& item : value.toTensorVector()) note_shared(*pending, item);
      }
      const bool is_tensor = value.isTensor() || value.isTensorList();
      if (is_work(returns[i])) continue;
      if (!is_tensor && !value.isNone() && !is_size(pending->call.op.value(), returns[i])) {
        program_.host_reads.push_back(index);
      }
      if (value.isTensor() && value.toTensor().defined() &&
          UnwrittenMemory::is_made_by(pending->call.op.value())) {
        unwritten_.insert(value.toTensor());
      }
    }
    if (pending->mutates_outside) program_.mutations.push_back(index);
    program_.calls.push_back(std::move(pending->call));
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Recorder::raised() noexcept {
  refuse(
      "it goes on after an operator raised an error, and whether one does may depend on the "
      "inputs, which a replay does not ask; test for it before the call");
}

void Recorder::close() noexcept {
  const std::scoped_lock lock(mutex_);
  is_closed_ = true;
}

void Recorder::set_module(std::string path) {
  const std::scoped_lock lock(mutex_);
  module_path_ = std::move(path);
}

void Recorder::refuse(const std::string& what) noexcept {
  const std::scoped_lock lock(mutex_);
  fail(what);
}

void Recorder::begin_backward(const std::vector<at::Tensor>& roots) {
  const std::scoped_lock lock(mutex_);
  backward_.emplace();
  for (const at::Tensor& leaf : find_leaves(roots)) {
    backward_->emplace_back(leaf, leaf.grad().defined());
  }
}

void Recorder::end_backward(const std::vector<at::Tensor>& roots,
                            const std::vector<at::Tensor>& gradients, bool keeps_graph) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto leaves = std::exchange(backward_, std::nullopt).value();
  if (!failure_.empty()) return;
  try {
    Call call;
    Backward& backward = call.backward.emplace();
    operator_name_ = call.operator_name();
    call.module_path = module_path_;
    call.grad_mode = c10::GradMode::is_enabled();
    backward.keeps_graph = keeps_graph;
    for (const at::Tensor& root : roots) backward.roots.push_back(slots_.find_or_capture(root));
    for (const at::Tensor& given : gradients)
      backward.gradients.push_back(slots_.find_or_capture(given));
    for (const auto& [leaf, had_gradient] : leaves) {
      const at::Tensor& gradient = leaf.grad();
      if (!gradient.defined()) continue;
      const int slot = slots_.find_or_capture(leaf);
      if (slots_.is_outside(slot)) leaves_.emplace_back(slot, leaf);
      backward.leaves.push_back(
          {slot, had_gradient ? slots_.find_or_capture(gradient) : slots_.add(gradient),
           had_gradient});
    }
    program_.calls.push_back(std::move(call));
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

Program Recorder::finish(const std::vector<at::Tensor>& outputs, const IsHeld& is_held) {
  close();
  if (!failure_.empty()) throw UnsupportedError(failure_);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (slots_.find(outputs[i]) == kNoSlot && !slots_.is_weight(outputs[i])) {
      throw UnsupportedError(
          "cannot tape this model: output " + std::to_string(i) + " of shape " +
          c10::str(outputs[i].sizes()) +
          " was not made by an operator call (made with numpy, .data or a C++ extension?)");
    }
    if (outputs[i].numel() > 0 && unwritten_.contains(outputs[i])) {
      throw UnsupportedError("cannot tape this model: no operator call wrote its output " +
                             std::to_string(i) +
                             " (a Triton kernel, numpy or an extension did?); register what fills "
                             "it as an operator, for example with torch's triton_op");
    }
    program_.output_slots.push_back(slots_.find_or_capture(outputs[i]));
  }
  program_.slot_count = slots_.count();
  program_.constants = slots_.constants();
  program_.captured_slots = slots_.captured();
  add_releases(program_);
  program_.passing_slots = find_passing(program_, kHeldTwice, is_held);
  for (const auto& [slot, leaf] : leaves_) {
    if (!leaf.grad().defined()) program_.bare.push_back(slot);
  }
  return std::move(program_);
}

}  // namespace ftax
