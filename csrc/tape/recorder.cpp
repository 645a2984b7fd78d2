// What becomes of an operator call: its arguments are turned into slots and constants before it
// runs, its results into slots after it. See Note [Memory that Python fills] in unwritten_memory.h.
//
// Note [Tensors that autograd makes]
// What autograd saves for the backward pass it unpacks as new tensors over the same memory, and its
// views are new tensors too. Below it a tensor is therefore also known by storage, offset, sizes,
// strides and dtype. A storage's address is not used again while a weak pointer to it is held.
#include "tape/recorder.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "tape/own_generators.h"
#include "tape/written_arguments.h"

namespace ftax {
namespace {

constexpr size_t kHeldTwice = 2;  // a constant: by the program, and by the recorder

bool is_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

void collect_slots(const Argument& argument, std::vector<int>& slots) {
  if (argument.kind == Argument::Kind::kSlot) slots.push_back(argument.slot);
  for (const Argument& item : argument.items) collect_slots(item, slots);
}

void collect_slots(const Backward& backward, std::vector<int>& slots) {
  slots.insert(slots.end(), backward.roots.begin(), backward.roots.end());
  slots.insert(slots.end(), backward.gradients.begin(), backward.gradients.end());
  for (const Backward::Leaf& leaf : backward.leaves) {
    slots.insert(slots.end(), {leaf.slot, leaf.gradient});
  }
}

void collect_slots(const Output& output, std::vector<int>& slots) {
  if (output.slot != kNoSlot) slots.push_back(output.slot);
  for (const int item : output.items) {
    if (item != kNoSlot) slots.push_back(item);
  }
}

// Whether a number that a call returned is one of a tensor's sizes, which guards look at. Attention
// returns the lengths that it was given: torch declares such numbers as SymInt. In operators of
// others, any number may be declared so.
bool is_size(const c10::OperatorHandle& op, const c10::Argument& returned) {
  if (UnwrittenMemory::reads_shapes_only(op)) return true;
  return returned.real_type()->kind() == c10::TypeKind::SymIntType &&
         op.operator_name().name.starts_with("aten::");
}

// The leaves at which a backward pass from `roots` leaves gradients: autograd's graph knows them
// all, wherever Python keeps them.
std::vector<at::Tensor> find_leaves(const std::vector<at::Tensor>& roots) {
  std::vector<at::Tensor> leaves;
  torch::autograd::edge_list edges;  // nothing else need hold the node of a root that is a leaf
  std::unordered_set<const torch::autograd::Node*> seen;
  const auto add = [&](const torch::autograd::Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) edges.push_back(edge);
  };
  for (const at::Tensor& root : roots) {
    if (root.requires_grad()) add(torch::autograd::impl::gradient_edge(root));
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    torch::autograd::Node* const node = edges[i].function.get();  // the list holds it, and grows
    const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
    if (end != nullptr) leaves.push_back(end->variable);
    std::ranges::for_each(node->next_edges(), add);
  }
  return leaves;
}

bool requires_grad(const std::vector<c10::IValue>& stack) {
  const auto asks = [](const at::Tensor& tensor) { return tensor.requires_grad(); };
  return std::ranges::any_of(stack, [&](const c10::IValue& value) {
    if (value.isTensor()) return asks(value.toTensor());
    if (value.isTensorList()) return std::ranges::any_of(value.toTensorVector(), asks);
    if (!value.isOptionalTensorList()) return false;
    return std::ranges::any_of(value.toOptionalTensorVector(),
                               [&](const auto& item) { return item.has_value() && asks(*item); });
  });
}

}  // namespace

Recorder::Recorder(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& weights,
                   c10::Device device, Level level)
    : device_(device), level_(level), state_(ThreadState::capture(device)) {
  program_.keeps_grad_mode = level_ != Level::kAboveAutograd;
  program_.inference_mode = state_.inference || level_ == Level::kBelowAutograd;
  for (const at::Tensor& input : inputs) {
    held_.push_back(input);
    const int slot = add_slot(input);
    program_.input_slots.push_back(slot);
    program_.input_facts.push_back(InputFacts::of(input));
    note_outside(input);
    outside_slots_.insert(slot);
  }
  for (const at::Tensor& weight : weights) {
    held_.push_back(weight);
    weights_.insert(weight.unsafeGetTensorImpl());
    remember_view(weight, kNoSlot, weight);
    note_outside(weight);
  }
}

void Recorder::fail(const std::string& what) noexcept {
  if (is_closed_ || !failure_.empty()) return;
  failure_ = "cannot tape this model: " + what;
  if (!operator_name_.empty()) failure_ += ", at operator " + operator_name_;
  failure_ += module_path_.empty() ? " in the model's own forward" : " in module " + module_path_;
}

int Recorder::add_slot(const at::Tensor& tensor) {
  const int slot = program_.slot_count++;
  slots_[tensor.unsafeGetTensorImpl()] = slot;
  weak_tensors_.emplace_back(tensor.getIntrusivePtr());
  remember_view(tensor, slot, {});
  if (c10::StorageImpl* storage = get_storage(tensor);
      storage != nullptr && storages_.insert(storage).second) {
    weak_storages_.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  }
  return slot;
}

void Recorder::keep_constant(int slot, const at::Tensor& tensor) {
  held_.push_back(tensor);
  program_.constants.emplace_back(slot, tensor);
  outside_slots_.insert(slot);
  note_outside(tensor);
}

void Recorder::note_outside(const at::Tensor& tensor) {
  if (c10::StorageImpl* storage = get_storage(tensor)) outside_storages_.insert(storage);
}

bool Recorder::View::shows(const at::Tensor& tensor) const {
  return offset == tensor.storage_offset() && tensor.sizes() == at::IntArrayRef(sizes) &&
         tensor.strides() == at::IntArrayRef(strides) && dtype == tensor.scalar_type() &&
         !tensor.is_conj() && !tensor.is_neg();
}

void Recorder::remember_view(const at::Tensor& tensor, int slot, const at::Tensor& weight) {
  if (level_ != Level::kBelowAutograd || tensor.layout() != at::kStrided || tensor.is_conj() ||
      tensor.is_neg()) {
    return;
  }
  if (c10::StorageImpl* storage = get_storage(tensor)) {
    views_[storage].push_back({tensor.storage_offset(), tensor.sizes().vec(),
                               tensor.strides().vec(), tensor.scalar_type(), slot, weight});
  }
}

// kNoSlot for what is not known. See Note [Tensors that autograd makes].
int Recorder::find_slot(const at::Tensor& tensor) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (const auto found = slots_.find(impl); found != slots_.end()) return found->second;
  if (level_ != Level::kBelowAutograd || weights_.contains(impl) ||
      tensor.layout() != at::kStrided) {
    return kNoSlot;
  }
  const auto views = views_.find(get_storage(tensor));
  if (views == views_.end()) return kNoSlot;
  for (auto view = views->second.rbegin(); view != views->second.rend(); ++view) {
    if (!view->shows(tensor)) continue;
    const int slot = view->slot != kNoSlot ? view->slot : find_or_capture(at::Tensor(view->weight));
    slots_[impl] = slot;
    weak_tensors_.emplace_back(tensor.getIntrusivePtr());
    return slot;
  }
  return kNoSlot;
}

int Recorder::find_or_capture(const at::Tensor& tensor) {
  if (const int slot = find_slot(tensor); slot != kNoSlot) return slot;
  const bool is_weight = weights_.contains(tensor.unsafeGetTensorImpl());
  if (!is_weight && storages_.contains(get_storage(tensor))) {
    throw UnsupportedError(
        "a tensor shares memory with one that the inference computed, but no operator call made it "
        "(.data, .numpy() and C++ extensions do this; use .detach() or an operator)");
  }
  const int slot = program_.slot_count++;
  slots_[tensor.unsafeGetTensorImpl()] = slot;
  keep_constant(slot, tensor);
  if (!is_weight && !is_number(tensor)) program_.captured_slots.push_back(slot);
  return slot;
}

Argument Recorder::convert_tensor(const at::Tensor& tensor) {
  Argument argument;
  if (tensor.defined()) {
    argument.kind = Argument::Kind::kSlot;
    argument.slot = find_or_capture(tensor);
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
  const int slot = slots_.at(tensor.unsafeGetTensorImpl());
  c10::StorageImpl* storage = get_storage(tensor);
  pending.given.emplace_back(slot, storage);
  if (level_ == Level::kWithAutograd && !outside_slots_.contains(slot) && tensor.is_leaf() &&
      tensor.requires_grad()) {
    pending.call.leaves.push_back(slot);
  }
  // `detach_`, with which torch.tensor ends, writes no memory, though its schema says so.
  if (is_written && pending.call.op.value().operator_name().name != "aten::detach_") {
    pending.call.written.push_back(slot);
    pending.mutates_outside |= outside_storages_.contains(storage) || outside_slots_.contains(slot);
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
    const bool is_read = alias == nullptr || !alias->isWrite();  // statistics are, before they move
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
    fill.outputs.push_back({slots_.at(tensor.unsafeGetTensorImpl()), false, {}});
    fill.module_path = pending.call.module_path;
    program_.calls.push_back(std::move(fill));
  }
}

Output Recorder::add_output(const c10::IValue& value) {
  const auto slot_of = [this](const at::Tensor& tensor) {
    if (!tensor.defined()) return kNoSlot;
    const auto found = slots_.find(tensor.unsafeGetTensorImpl());
    return found != slots_.end() ? found->second : add_slot(tensor);
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
    for (const at::Tensor& root : roots) backward.roots.push_back(find_or_capture(root));
    for (const at::Tensor& given : gradients) backward.gradients.push_back(find_or_capture(given));
    for (const auto& [leaf, had_gradient] : leaves) {
      const at::Tensor& gradient = leaf.grad();
      if (!gradient.defined()) continue;
      const int slot = find_or_capture(leaf);
      if (outside_slots_.contains(slot)) leaves_.emplace_back(slot, leaf);
      backward.leaves.push_back(
          {slot, had_gradient ? find_or_capture(gradient) : add_slot(gradient), had_gradient});
    }
    program_.calls.push_back(std::move(call));
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Recorder::compute_releases() {
  std::vector<bool> kept(static_cast<size_t>(program_.slot_count), false);
  for (const int slot : outside_slots_) kept[static_cast<size_t>(slot)] = true;
  for (const int slot : program_.output_slots) kept[static_cast<size_t>(slot)] = true;
  for (auto call = program_.calls.rbegin(); call != program_.calls.rend(); ++call) {
    std::vector<int> used;
    for (const Argument& argument : call->arguments) collect_slots(argument, used);
    for (const Output& output : call->outputs) collect_slots(output, used);
    if (call->backward.has_value()) collect_slots(*call->backward, used);
    for (const int slot : used) {
      if (kept[static_cast<size_t>(slot)]) continue;
      kept[static_cast<size_t>(slot)] = true;
      call->releases.push_back(slot);
    }
  }
}

Program Recorder::finish(const std::vector<at::Tensor>& outputs, const IsHeld& is_held) {
  close();
  if (!failure_.empty()) throw UnsupportedError(failure_);
  for (size_t i = 0; i < outputs.size(); ++i) {
    c10::TensorImpl* impl = outputs[i].unsafeGetTensorImpl();
    if (find_slot(outputs[i]) == kNoSlot && !weights_.contains(impl)) {
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
    program_.output_slots.push_back(find_or_capture(outputs[i]));
  }
  compute_releases();
  find_passing(is_held);
  for (const auto& [slot, leaf] : leaves_) {
    if (!leaf.grad().defined()) program_.bare.push_back(slot);
  }
  return std::move(program_);
}

// Of a captured tensor that nobody but this recording holds, and whose memory torch allocated: a
// list that was given as an index becomes one, unseen. Memory of numpy or of an extension may live
// on without its tensor.
void Recorder::find_passing(const IsHeld& is_held) {
  for (const auto& [slot, tensor] : program_.constants) {
    if (!std::ranges::count(program_.captured_slots, slot)) continue;
    const c10::StorageImpl* storage = get_storage(tensor);
    const bool is_own = storage != nullptr && tensor.is_cpu() && storage->allocator() != nullptr;
    if (is_own && tensor.storage().use_count() == 1 && !is_held(tensor, kHeldTwice)) {
      program_.passing_slots.push_back(slot);
    }
  }
}

}  // namespace ftax
