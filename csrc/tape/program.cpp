// A dropped call leaves its releases to the call before it: memory dies where it can die first.
#include "tape/program.h"

#include <algorithm>

#include "core/error.h"
#include "tape/lifetimes.h"

namespace ftax {
namespace {

bool makes_tensors(const Call& call) {
  return std::any_of(call.outputs.begin(), call.outputs.end(), [](const Output& output) {
    return output.slot != kNoSlot || std::any_of(output.items.begin(), output.items.end(),
                                                 [](int item) { return item != kNoSlot; });
  });
}

bool has_strides(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_nested();
}

bool contains(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool makes(const Call& call, int slot) {
  return std::any_of(call.outputs.begin(), call.outputs.end(), [slot](const Output& output) {
    return output.slot == slot || contains(output.items, slot);
  });
}

void replace_slot(Argument& argument, int slot, int other) {
  if (argument.kind == Argument::Kind::kSlot && argument.slot == slot) argument.slot = other;
  for (Argument& item : argument.items) replace_slot(item, slot, other);
}

// In place of the read a copy of what it reads, which a later call may write.
void keep_value(Program& program, Call& call) {
  if (makes_tensors(call) || call.arguments.size() != 1 ||
      call.arguments[0].kind != Argument::Kind::kSlot) {
    throw UnsupportedError("the value that " + call.operator_name() +
                           " reads is not one element of a tensor, so it cannot be checked");
  }
  call.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  call.arguments.emplace_back();  // of the clone: any memory format
  call.outputs = {Output{.slot = program.slot_count++, .items = {}}};
  program.output_slots.push_back(call.outputs[0].slot);
}

Program drop_calls(const Program& program, const std::vector<int>& dropped) {
  Program result = program;
  result.calls.clear();
  result.host_reads.clear();
  result.mutations.clear();
  for (int index = 0; index < static_cast<int>(program.calls.size()); ++index) {
    const Call& call = program.calls[static_cast<size_t>(index)];
    if (contains(dropped, index)) {
      if (result.calls.empty()) continue;  // it read a constant or an input: nothing dies
      std::vector<int>& releases = result.calls.back().releases;
      releases.insert(releases.end(), call.releases.begin(), call.releases.end());
      continue;
    }
    const int kept = static_cast<int>(result.calls.size());
    if (contains(program.host_reads, index)) result.host_reads.push_back(kept);
    if (contains(program.mutations, index)) result.mutations.push_back(kept);
    result.calls.push_back(call);
  }
  return result;
}

}  // namespace

InputFacts InputFacts::of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(),
          has_strides(tensor) ? tensor.strides().vec() : std::vector<int64_t>{},
          tensor.scalar_type(), tensor.device()};
}

// Strides of dimensions of size 1 say nothing, and torch keeps them or not.
bool InputFacts::fit(const at::Tensor& tensor) const {
  if (tensor.scalar_type() != dtype || tensor.device() != device) return false;
  if (tensor.sizes() != at::IntArrayRef(sizes)) return false;
  if (!has_strides(tensor)) return strides.empty();
  if (tensor.numel() == 0) return true;
  if (tensor.strides().size() != strides.size()) return false;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (sizes[i] > 1 && tensor.strides()[i] != strides[i]) return false;
  }
  return true;
}

std::string Call::operator_name() const {
  if (!op.has_value()) return backward.has_value() ? "ftax::backward" : "ftax::fill";
  const c10::OperatorName& name = op->operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

Program drop_host_reads(const Program& program, const std::vector<int>& kept) {
  Program result = program;
  std::vector<int> dropped;
  result.host_reads.clear();
  for (const int index : program.host_reads) {
    Call& call = result.calls[static_cast<size_t>(index)];
    if (contains(kept, index)) {
      keep_value(result, call);
    } else if (makes_tensors(call)) {
      result.host_reads.push_back(index);
    } else {
      dropped.push_back(index);
    }
  }
  return drop_calls(result, dropped);
}

Program take_part(const Program& program, size_t first, size_t last,
                  const std::vector<std::pair<int, at::Tensor>>& inputs,
                  const std::vector<int>& outputs) {
  if (first > last || last > program.calls.size()) {
    throw InvalidArgumentError("there are no calls from " + std::to_string(first) + " to " +
                               std::to_string(last) + " of " +
                               std::to_string(program.calls.size()));
  }
  std::vector<int> others;
  for (size_t index = 0; index < program.calls.size(); ++index) {
    if (index < first || index >= last) others.push_back(static_cast<int>(index));
  }
  Program result = drop_calls(program, others);
  for (Call& call : result.calls) call.releases.clear();
  result.input_slots.clear();
  result.input_facts.clear();
  for (const auto& [slot, tensor] : inputs) {
    result.input_slots.push_back(slot);
    result.input_facts.push_back(InputFacts::of(tensor));
  }
  result.output_slots = outputs;
  add_releases(result);
  return result;
}

Program bake(const Program& program, const std::vector<Baked>& places) {
  Program result = program;
  std::vector<int> dropped;
  for (const Baked& baked : places) {
    Call& call = result.calls.at(static_cast<size_t>(baked.call));
    int slot = baked.slot;
    if (makes(call, slot)) {
      dropped.push_back(baked.call);
      for (Call& other : result.calls) std::erase(other.releases, slot);
    } else {
      slot = result.slot_count++;
      for (Argument& argument : call.arguments) replace_slot(argument, baked.slot, slot);
    }
    result.constants.emplace_back(slot, baked.tensor);
  }
  return drop_calls(result, dropped);
}

}  // namespace ftax
