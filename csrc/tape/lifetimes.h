// How long a replay keeps each slot.
#pragma once

#include <functional>
#include <vector>

#include "tape/program.h"

namespace ftax {

// Writes into each call the slots whose last use it is: neither inputs, constants nor outputs.
void add_releases(Program& program);

// `is_held(tensor, times)`: whether more hold a tensor than C++ so many times.
using IsHeld = std::function<bool(const at::Tensor&, size_t)>;

// The captured tensors that nobody but this recording holds, and whose memory torch allocated: a
// list that was given as an index becomes one, unseen. Memory of numpy or of an extension may live
// on without its tensor. `held` is how often the recording itself holds a constant.
[[nodiscard]] std::vector<int> find_passing(const Program& program, size_t held,
                                            const IsHeld& is_held);

}  // namespace ftax
