// What this process asked of the kernel, all its threads together: pages of memory that it touched
// for the first time, and time that it spent there.
#pragma once

#include <cstdint>

namespace ftax {

struct KernelUse {
  int64_t page_faults = 0;  // with and without a disk
  int64_t system_ns = 0;    // of CPU time; on some machines in steps of a tick, 1 to 10 ms

  friend KernelUse operator-(const KernelUse& a, const KernelUse& b) {
    return {a.page_faults - b.page_faults, a.system_ns - b.system_ns};
  }
};

// Since the process began.
[[nodiscard]] KernelUse read_kernel_use();

}  // namespace ftax
