// What the host machine was like while a round ran: the times of two fixed computations, which
// nothing but the machine can change, the time that a hypervisor gave to others, and how long
// threads of this process waited for a CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <vector>

#include "measure/kernel_use.h"
#include "measure/thread_waits.h"

namespace ftax {

// How much slower than its fastest a probe may be before the core counts as shared.
inline constexpr double kProbeToleranceRatio = 0.2;

// Of the requests of a runner's part of a round, how many threads may have kept waiting for a CPU
// before the round counts as disturbed. A median does not see fewer.
inline constexpr double kQueuedToleranceRatio = 0.2;

// Of the chain: 16,000 times a multiplication (3 cycles on every x86-64 of the last decade) and an
// addition. Other architectures have other latencies, so there its time is no clock.
inline constexpr int64_t kChainCycles = 64'000;

struct HostProbe {
  int64_t loop_ns = 0;      // a fixed chain of dependent operations, kChainCycles long
  int64_t steal_ticks = 0;  // since the probe before, on the CPUs that the measuring thread may
                            // use; 1/100 s each on Linux; 0 where unknown
  int64_t wide_ns = 0;      // independent operations that fill the core, about 3 us: a neighbour on
                            // the core's other hardware thread slows these, and not the chain
  int64_t within_ns = 0;    // the same between requests since the probe before, of which a fifth
                            // were slower; 0 if there were none
  int64_t waited_ns = 0;    // afterwards, for a neighbour to leave
  bool left = false;        // and it did: what comes next begins on a core of its own
  double queued_ratio = 0;  // the largest of `HostProber::end_part` since the probe before
};

// Of a runner's part of a round.
struct PartWaits {
  double queued_ratio = 0;  // of its samples, those that can have been a fifth longer, and 0.1 ms,
                            // because a thread of this process waited for a CPU
  // During the samples that are not dropped: how long threads waited altogether, where the kernel
  // says, and what they asked of it.
  std::optional<int64_t> time_ns;
  KernelUse kernel;
};

class HostProber {
 public:
  // `quiet_wide_ns` is what the wide loop takes on a core of its own, where an earlier run has seen
  // it; 0: the fastest that this prober sees. Not `alone`: other processes measure the same, and
  // that threads wait for those tells of no neighbour.
  explicit HostProber(int64_t quiet_wide_ns = 0, bool alone = true);
  [[nodiscard]] HostProbe probe();

  // Between two requests, neither of which it is part of: looks whether a neighbour is there, at
  // most every half millisecond. A neighbour that comes and goes within a round shows nowhere else.
  void look(int64_t now);

  // Around a runner's part of a round, outside of all that is timed: how long threads of this
  // process, those of the team that does the work among them, waited for a CPU. The first `dropped`
  // samples do not count, and `sample_ns` is the median of all.
  void begin_part(int dropped = 0);
  [[nodiscard]] PartWaits end_part(size_t samples, int64_t sample_ns);

  // After `probe`, which it completes: while a neighbour shares the core, waits for it to leave, at
  // most `limit_ns`. Calls `poll` about twenty times a second.
  void wait_for_core(HostProbe& probe, int64_t limit_ns, const std::function<void()>& poll);

  // After a pause of this process: what was stolen in it belongs to no round.
  void forget_steal();

 private:
  [[nodiscard]] bool is_shared(int64_t wide_ns) const;
  int64_t time_wide();

  const bool alone_;
  int64_t fastest_wide_ns_;
  int64_t fastest_loop_ns_, last_loop_ns_ = 0;
  const std::vector<int> cpus_;
  int64_t last_steal_ticks_ = 0;
  int64_t last_look_ = 0;
  std::vector<int64_t> looks_ns_;
  ThreadWaits waits_;
  double queued_ratio_ = 0;
  int to_drop_ = 0;  // samples of the part, from now on
  int64_t waited_before_ns_ = 0;
  KernelUse used_before_;
};

// The steal of `cpus`, from the text of /proc/stat, in ticks; 0 where it does not say. Those of the
// whole machine would count what others lose on CPUs that are not this process's.
[[nodiscard]] int64_t sum_steal_ticks(std::istream& stat, const std::vector<int>& cpus);

// Indices of the rounds in which the host was disturbed. `probes` are those before each round and
// the one after the last. A round is disturbed if steal time was taken in it, or if on either side
// of it the chain ran more than `tolerance_ratio` slower than in the middle probe, or a neighbour
// was there, or in a fifth of the looks within it, or a thread of this process waited for a CPU. A
// neighbour slows the wide loop against its fastest time, because one that stays for most of a run
// slows the middle too; and against the chain, because a lower clock slows both and is no
// neighbour. They are flagged and kept; `choose_rounds` says which count.
[[nodiscard]] std::vector<int> find_disturbed_rounds(const std::vector<HostProbe>& probes,
                                                     double tolerance_ratio = kProbeToleranceRatio);

// The indices, of `rounds`, that statistics count: those that were not disturbed, if there are 20
// of them, or a third of all and 5; otherwise all, since a neighbour that is always there is what
// the machine is like. The choice knows nothing of what was measured, so it favours no runner.
[[nodiscard]] std::vector<int> choose_rounds(int rounds, const std::vector<int>& disturbed);

}  // namespace ftax
