// What the host machine was like while a round ran: the times of two fixed computations, which
// nothing but the machine can change, and the time that a hypervisor gave to others.
#pragma once

#include <cstdint>
#include <vector>

namespace ftax {

struct HostProbe {
  int64_t loop_ns = 0;      // a fixed chain of dependent multiplications, about 20 us
  int64_t steal_ticks = 0;  // since the probe before; 1/100 s each on Linux; 0 where unknown
  int64_t wide_ns = 0;      // independent operations that fill the core, about 3 us: a neighbour on
                            // the core's other hardware thread slows these, and not the chain
};

class HostProber {
 public:
  HostProber();
  [[nodiscard]] HostProbe probe();

 private:
  int64_t last_steal_ticks_ = 0;
};

// Indices of the rounds in which the host was disturbed. `probes` are those before each round and
// the one after the last. A round is disturbed if steal time was taken in it, or if a loop ran more
// than `tolerance_ratio` slower than its fastest on either side of it: than the fastest, because a
// neighbour that stays for most of a run slows the median too. They are flagged and kept.
[[nodiscard]] std::vector<int> find_disturbed_rounds(const std::vector<HostProbe>& probes,
                                                     double tolerance_ratio = 0.2);

}  // namespace ftax
