// The launch attributes that a kernel node of a graph carries, read so that a launch can repeat
// them.
#pragma once

#include <string>
#include <vector>

#include "cuda/driver.h"

namespace ftax::cuda {

// A node says 0 for "no preferred shared-memory carve-out", and 0 passed to a launch means "all of
// it to the cache", which makes some kernels slower. kIfSet leaves a 0 out; kAlways passes it, and
// exists to show the difference.
enum class Carveout { kIfSet, kAlways };

// The attributes that are not at their default.
[[nodiscard]] std::vector<CUlaunchAttribute> read_attributes(const Driver& driver, CUgraphNode node,
                                                             Carveout carveout);

// Lets the kernel start before the one in front of it in the stream has ended.
[[nodiscard]] CUlaunchAttribute make_programmatic_serialization();

[[nodiscard]] std::string name_attribute(const CUlaunchAttribute& attribute);
// "2 x 1 x 1", "3", "4096 bytes".
[[nodiscard]] std::string describe_value(const CUlaunchAttribute& attribute);

}  // namespace ftax::cuda
