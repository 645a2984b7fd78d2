// Linux only, through sched_setaffinity on the calling thread; the old set is restored on leaving.
#include "measure/affinity.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "core/error.h"

namespace ftax {
namespace {

std::string list_cpus(const cpu_set_t& set) {
  std::string text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  }
  return text;
}

}  // namespace

std::vector<int> list_allowed_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

AffinityScope::AffinityScope(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  if (sched_getaffinity(0, sizeof before_, &before_) != 0) {
    throw UnavailableError(std::string("sched_getaffinity failed: ") + std::strerror(errno));
  }
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &before_)) {
      throw InvalidArgumentError("cannot pin to CPU " + std::to_string(cpu) +
                                 ": this process may use " + list_cpus(before_));
    }
    CPU_SET(cpu, &wanted);
  }
  if (sched_setaffinity(0, sizeof wanted, &wanted) != 0) {
    throw UnavailableError(std::string("sched_setaffinity failed: ") + std::strerror(errno));
  }
  pinned_ = true;
}

AffinityScope::~AffinityScope() {
  if (pinned_) sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace ftax
