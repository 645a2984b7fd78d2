// Pins the calling thread to a set of CPUs for as long as it lives. A set, never one CPU for all:
// threads started while pinned inherit the set, and a team of OpenMP threads on one core is a
// measurement of the scheduler.
#pragma once

#include <sched.h>

#include <vector>

namespace ftax {

// The CPUs that the calling thread may use, ascending; empty where the kernel does not say.
[[nodiscard]] std::vector<int> list_allowed_cpus();

class AffinityScope {
 public:
  // An empty set pins nothing. Throws InvalidArgumentError for a CPU that this process may not use.
  explicit AffinityScope(const std::vector<int>& cpus);
  ~AffinityScope();
  AffinityScope(const AffinityScope&) = delete;
  AffinityScope& operator=(const AffinityScope&) = delete;

 private:
  cpu_set_t before_;
  bool pinned_ = false;
};

}  // namespace ftax
