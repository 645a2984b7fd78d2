// Both loops fit in registers, so neither caches nor the runner that ran before can change their
// times; only the clock frequency, theft and whoever shares the core can.
#include "measure/host_probe.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <istream>
#include <iterator>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "measure/affinity.h"

namespace ftax {
namespace {

constexpr int kChainLength = kChainCycles / 4;
constexpr int kWideLength = 4'000;
constexpr int64_t kShortWaitNs = 100'000;  // a sleeping thread that is woken waits for some us
constexpr int64_t kLookEveryNs = 500'000;  // of which a look takes half a percent
constexpr int kQuietLooks = 10;  // one after the other, before a neighbour is said to have left
constexpr int64_t kBetweenLooksNs = 200'000;
constexpr int64_t kPollEveryNs = 50'000'000;
constexpr size_t kLeastQuietRounds = 5, kManyQuietRounds = 20;

int64_t time_chain() {
  const int64_t start = now_ns();
  uint64_t value = static_cast<uint64_t>(start) | 1U;
  for (int i = 0; i < kChainLength; ++i)
    value = value * 6364136223846793005ULL + 1442695040888963407ULL;
  // The asm statement consumes the result, so that the chain cannot be optimised away.
  asm volatile("" : : "r"(value) : "memory");
  return now_ns() - start;
}

int64_t time_wide_loop() {
  const int64_t start = now_ns();
  uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;
  for (int i = 0; i < kWideLength; ++i) {
    a += 7;
    b ^= 11U;
    c -= 13;
    d += 17;
    e ^= 19U;
    f -= 23;
    // Keeps the six in registers of their own: neither vectorised nor folded into one addition.
    asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
  }
  return now_ns() - start;
}

double find_fastest(const std::vector<int64_t>& times_ns) {
  return static_cast<double>(*std::min_element(times_ns.begin(), times_ns.end()));
}

double find_median(std::vector<int64_t> times_ns) {
  const auto middle = times_ns.begin() + static_cast<std::ptrdiff_t>(times_ns.size() / 2);
  std::nth_element(times_ns.begin(), middle, times_ns.end());
  return static_cast<double>(*middle);
}

// The value that a fifth of `times_ns` exceed, which is empty afterwards; 0 for none.
int64_t take_high_value(std::vector<int64_t>& times_ns) {
  if (times_ns.empty()) return 0;
  const auto high = times_ns.begin() + static_cast<std::ptrdiff_t>(times_ns.size() * 4 / 5);
  std::nth_element(times_ns.begin(), high, times_ns.end());
  const int64_t value = *high;
  times_ns.clear();
  return value;
}

int64_t read_steal_ticks(const std::vector<int>& cpus) {
  std::ifstream file("/proc/stat");
  return sum_steal_ticks(file, cpus);
}

}  // namespace

HostProber::HostProber(int64_t quiet_wide_ns, bool alone)
    : alone_(alone),
      fastest_wide_ns_(quiet_wide_ns > 0 ? quiet_wide_ns : std::numeric_limits<int64_t>::max()),
      fastest_loop_ns_(std::numeric_limits<int64_t>::max()),
      cpus_(list_allowed_cpus()),
      last_steal_ticks_(read_steal_ticks(cpus_)) {}

void HostProber::begin_part(int dropped) {
  waits_.take(1);
  to_drop_ = dropped;
  waited_before_ns_ = 0;
  used_before_ = read_kernel_use();
}

PartWaits HostProber::end_part(size_t samples, int64_t sample_ns) {
  const KernelUse used = read_kernel_use() - used_before_;
  const auto fifth_ns = static_cast<int64_t>(static_cast<double>(sample_ns) * kProbeToleranceRatio);
  const int64_t least_ns = std::max(fifth_ns, kShortWaitNs);
  const Waits waits = waits_.take(least_ns);
  const auto longer = static_cast<double>(waits.count);
  const double ratio =
      samples == 0 || !alone_ ? 0.0 : std::min(longer / static_cast<double>(samples), 1.0);
  queued_ratio_ = std::max(queued_ratio_, ratio);
  if (!waits_.is_known()) return {ratio, std::nullopt, used};
  return {ratio, std::max<int64_t>(waits.time_ns - waited_before_ns_, 0), used};
}

int64_t HostProber::time_wide() {
  const int64_t wide_ns = time_wide_loop();
  fastest_wide_ns_ = std::min(fastest_wide_ns_, wide_ns);
  return wide_ns;
}

bool HostProber::is_shared(int64_t wide_ns) const {
  const double clock_ratio =
      static_cast<double>(last_loop_ns_) / static_cast<double>(fastest_loop_ns_);
  return static_cast<double>(wide_ns) >
         static_cast<double>(fastest_wide_ns_) * (1.0 + kProbeToleranceRatio) * clock_ratio;
}

HostProbe HostProber::probe() {
  const int64_t steal_ticks = read_steal_ticks(cpus_);
  HostProbe result;
  result.loop_ns = last_loop_ns_ = time_chain();
  fastest_loop_ns_ = std::min(fastest_loop_ns_, last_loop_ns_);
  result.steal_ticks = steal_ticks - last_steal_ticks_;
  result.wide_ns = time_wide();
  result.within_ns = take_high_value(looks_ns_);
  result.queued_ratio = queued_ratio_;
  queued_ratio_ = 0;
  waits_.find_threads();
  last_steal_ticks_ = steal_ticks;
  return result;
}

void HostProber::forget_steal() { last_steal_ticks_ = read_steal_ticks(cpus_); }

void HostProber::look(int64_t now) {
  if (to_drop_ > 0) {
    --to_drop_;
    if (to_drop_ == 0) {
      waited_before_ns_ = waits_.read_time();
      used_before_ = read_kernel_use();
    }
  }
  if (now - last_look_ < kLookEveryNs) return;
  looks_ns_.push_back(time_wide());
  last_look_ = now;
}

void HostProber::wait_for_core(HostProbe& probe, int64_t limit_ns,
                               const std::function<void()>& poll) {
  if (!is_shared(probe.wide_ns)) return;
  const int64_t start = now_ns();
  int64_t polled = start;
  int quiet = 0;
  while (quiet < kQuietLooks && now_ns() - start < limit_ns) {
    // Busily: who sleeps gives the core away, and finds it cold.
    for (const int64_t until = now_ns() + kBetweenLooksNs; now_ns() < until;) {
    }
    quiet = is_shared(time_wide()) ? 0 : quiet + 1;
    if (now_ns() - polled < kPollEveryNs) continue;
    poll();
    polled = now_ns();
  }
  probe.waited_ns = now_ns() - start;
  probe.left = quiet == kQuietLooks;
  forget_steal();
}

int64_t sum_steal_ticks(std::istream& stat, const std::vector<int>& cpus) {
  // "cpu3 user nice system idle iowait irq softirq steal ...", after a line for all: "cpu  ...".
  constexpr std::string_view kLabel = "cpu";
  int64_t sum = 0;
  for (std::string line; std::getline(stat, line) && line.starts_with(kLabel);) {
    const char* end = line.data() + line.size();
    int cpu = -1;
    const auto [rest, problem] = std::from_chars(line.data() + kLabel.size(), end, cpu);
    if (problem != std::errc() || std::find(cpus.begin(), cpus.end(), cpu) == cpus.end()) continue;
    std::istringstream fields(std::string(rest, end));
    int64_t ticks = 0;
    for (int field = 0; field < 8; ++field) fields >> ticks;
    if (fields) sum += ticks;
  }
  return sum;
}

std::vector<int> find_disturbed_rounds(const std::vector<HostProbe>& probes,
                                       double tolerance_ratio) {
  std::vector<int> disturbed;
  if (probes.empty()) return disturbed;
  std::vector<int64_t> loops, wides;
  for (const HostProbe& probe : probes) {
    loops.push_back(probe.loop_ns);
    wides.push_back(probe.wide_ns);
  }
  const double loop_limit_ns = find_median(loops) * (1.0 + tolerance_ratio);
  const double fastest_loop_ns = find_fastest(loops);
  const double wide_limit_ns = find_fastest(wides) * (1.0 + tolerance_ratio);
  const auto is_shared = [&](const HostProbe& probe, int64_t wide_ns) {
    const double clock_ratio = static_cast<double>(probe.loop_ns) / fastest_loop_ns;
    return static_cast<double>(wide_ns) > wide_limit_ns * clock_ratio;
  };
  const auto is_slow = [&](const HostProbe& probe) {
    return static_cast<double>(probe.loop_ns) > loop_limit_ns || is_shared(probe, probe.wide_ns);
  };
  const auto met_neighbour = [&](const HostProbe& probe) {
    return is_shared(probe, probe.within_ns);
  };
  for (size_t round = 0; round + 1 < probes.size(); ++round) {
    const HostProbe& after = probes[round + 1];
    const bool began_slow = !probes[round].left && is_slow(probes[round]);
    const bool queued = after.queued_ratio > kQueuedToleranceRatio;
    if (after.steal_ticks > 0 || queued || began_slow || is_slow(after) || met_neighbour(after)) {
      disturbed.push_back(static_cast<int>(round));
    }
  }
  return disturbed;
}

std::vector<int> choose_rounds(int rounds, const std::vector<int>& disturbed) {
  std::vector<int> all(static_cast<size_t>(std::max(rounds, 0)));
  std::iota(all.begin(), all.end(), 0);
  std::vector<bool> is_quiet(all.size(), true);
  for (const int round : disturbed) {
    if (round >= 0 && round < rounds) is_quiet[static_cast<size_t>(round)] = false;
  }
  std::vector<int> quiet;
  std::copy_if(all.begin(), all.end(), std::back_inserter(quiet),
               [&](int round) { return is_quiet[static_cast<size_t>(round)]; });
  const bool are_many = quiet.size() >= kManyQuietRounds || 3 * quiet.size() >= all.size();
  return quiet.size() >= kLeastQuietRounds && are_many ? quiet : all;
}

}  // namespace ftax
