#include "tape/lifetimes.h"

#include <algorithm>

#include "tape/unwritten_memory.h"

namespace ftax {
namespace {

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

std::vector<int> list_used(const Call& call) {
  std::vector<int> used;
  for (const Argument& argument : call.arguments) collect_slots(argument, used);
  for (const Output& output : call.outputs) collect_slots(output, used);
  if (call.backward.has_value()) collect_slots(*call.backward, used);
  return used;
}

}  // namespace

void add_releases(Program& program) {
  std::vector<bool> kept(static_cast<size_t>(program.slot_count), false);
  const auto keep = [&](int slot) { kept[static_cast<size_t>(slot)] = true; };
  std::ranges::for_each(program.input_slots, keep);
  std::ranges::for_each(program.output_slots, keep);
  for (const auto& [slot, tensor] : program.constants) keep(slot);
  for (auto call = program.calls.rbegin(); call != program.calls.rend(); ++call) {
    for (const int slot : list_used(*call)) {
      if (kept[static_cast<size_t>(slot)]) continue;
      keep(slot);
      call->releases.push_back(slot);
    }
  }
}

std::vector<int> find_passing(const Program& program, size_t held, const IsHeld& is_held) {
  std::vector<int> passing;
  for (const auto& [slot, tensor] : program.constants) {
    if (!std::ranges::count(program.captured_slots, slot)) continue;
    const c10::StorageImpl* storage = get_storage(tensor);
    const bool is_own = storage != nullptr && tensor.is_cpu() && storage->allocator() != nullptr;
    if (is_own && tensor.storage().use_count() == 1 && !is_held(tensor, held)) {
      passing.push_back(slot);
    }
  }
  return passing;
}

}  // namespace ftax
