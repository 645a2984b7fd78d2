// A round is committed whole or not at all: its samples are collected beside the results and moved
// in when the last runner is done, so neither Ctrl-C nor a failing runner can leave a round in
// which only some runners took part.
#include "measure/rounds.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "core/clock.h"
#include "core/statistics.h"
#include "measure/affinity.h"

namespace ftax {
namespace {

constexpr int kMinKeptSamples = 3;       // unless one alone outlasts the round
constexpr int64_t kLongNs = 50'000'000;  // cold caches at the start of a round are lost in it
constexpr int64_t kLongestNs = 3'600'000'000'000;
constexpr int kSettlingPart = 4;  // of a round: what ran before has left its caches cold
constexpr int64_t kLongestPart =
    10;  // lengths of a round, after which a part takes no more samples
constexpr int kMaxSamples = 2000;
constexpr int kMaxDropped = kMaxSamples / kSettlingPart;
constexpr int64_t kBurstNs = 5'000'000;  // long enough that one synchronise is lost in it
constexpr int kMaxBurst = 10'000;
constexpr int64_t kAwayNs = 1'000'000;  // more than a progress bar needs: this process waited
constexpr int kTrialRounds = 5;         // TorchScript still compiles on its second and third call
constexpr int64_t kFarMore = 4;         // times as many requests as a part had
constexpr int64_t kFitting = 20;        // requests that a part is to have, if most are so short
constexpr int kMostAttempts = 4;        // at a part without a rebuild

// Written out because std::shuffle may differ between standard libraries, and the seed is recorded
// so that an order can be repeated.
std::vector<size_t> shuffle(std::vector<size_t> order, std::mt19937_64& random) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

// What a runner does in one round.
struct Part {
  int samples = 0;
  int dropped = 0;  // the first of them
  int burst = 1;    // requests a sample

  [[nodiscard]] int64_t requests() const { return int64_t{samples} * burst; }
  [[nodiscard]] bool is_least() const { return samples - dropped <= kMinKeptSamples; }
};

// What came of it.
struct Taken {
  std::vector<int64_t> samples_ns;
  PartWaits waits;
  bool rebuilt = false;  // the runner, in one of its requests
};

class Measurement {
 public:
  Measurement(std::vector<std::shared_ptr<Runner>> runners, const RoundPlan& plan,
              const Progress& progress, const Agree& agree)
      : runners_(std::move(runners)),
        plan_(plan),
        progress_(progress),
        agree_(agree),
        random_(plan.seed) {
    result_.runners.resize(runners_.size());
    parts_.resize(runners_.size());
    alive_.resize(runners_.size());
    std::iota(alive_.begin(), alive_.end(), size_t{0});
  }

  RoundsResult run() {
    const int64_t start = now_ns();
    try {
      warm_up_all(start);
      if (alive_.empty()) {
        result_.stop_reason = StopReason::kFailed;
      } else {
        run_rounds(start);
      }
    } catch (const Interrupted&) {
      result_.stop_reason = StopReason::kInterrupted;
    }
    result_.elapsed_ns = now_ns() - start;
    return std::move(result_);
  }

 private:
  // How long it took whoever was told, in ns: a process that measures by turns waits there.
  int64_t report(const char* phase, int done, int total) {
    if (!progress_ && !agree_) return 0;
    const int64_t start = now_ns();
    tell(phase, done, total);
    const int64_t told_ns = now_ns() - start;
    told_ns_ += told_ns;
    return told_ns;
  }

  // Who agrees is interrupted with the others.
  void tell(const char* phase, int done, int total) {
    bool is_interrupted = false;
    try {
      if (progress_) progress_(phase, done, total);
    } catch (const Interrupted&) {
      if (!agree_) throw;
      is_interrupted = true;
    }
    if (agree_if_any(agree_, is_interrupted)) throw Interrupted("interrupted between rounds");
  }

  // Runs `body` under the runner's scope; false if the runner failed, which ends its part. Where
  // processes agree it ends the measurement: of the others, each may be anywhere in a request.
  template <typename Body>
  bool guard(size_t index, Body body) {
    try {
      const auto scope = runners_[index]->enter();
      body(*runners_[index], result_.runners[index]);
      return true;
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      if (agree_) throw;
      result_.runners[index].error = error.what();
    }
    alive_.erase(std::find(alive_.begin(), alive_.end(), index));
    return false;
  }

  // Who would begin after the limit is not warmed up: it has run when it was made ready, and the
  // one round that follows takes its time.
  void warm_up_all(int64_t start) {
    const int total = static_cast<int>(runners_.size());
    for (size_t index = 0; index < runners_.size(); ++index) {
      report("warmup", static_cast<int>(index), total);
      guard(index, [&](Runner& runner, RunnerRounds& rounds) {
        const int64_t spent_ns = agree_on(agree_, now_ns() - start - told_ns_);
        const bool is_over = spent_ns > plan_.rule.time_limit_ns;
        if (!is_over) rounds.warmup = warm_up(runner, limit_warmup(total), agree_);
        // What was not warmed up for lack of time is taken for long.
        size_part(index, rounds.warmup.iterations > 0 ? find_time(rounds.warmup) : kLongestNs);
      });
    }
    report("warmup", total, total);
  }

  // All warm-ups together take at most half of the time there is, but for one request each.
  [[nodiscard]] WarmupPlan limit_warmup(int runners) const {
    WarmupPlan warmup = plan_.warmup;
    const int64_t share_ns = plan_.rule.time_limit_ns / (2 * int64_t{runners});
    warmup.limit_ns = std::clamp<int64_t>(share_ns, 1, warmup.limit_ns);
    return warmup;
  }

  // What decides how many requests fit into a round: their mean, where some take far longer than
  // most, as long as enough of the others are left.
  [[nodiscard]] int64_t find_time(const WarmupReport& warmup) const {
    const int64_t most_ns = std::max(warmup.latency_ns, plan_.round_duration_ns / kFitting);
    return std::min(warmup.mean_ns, most_ns);
  }

  void size_part(size_t index, int64_t latency_ns) {
    parts_[index] = choose_part(latency_ns);
    result_.runners[index].dropped = parts_[index].dropped;
    result_.runners[index].burst = parts_[index].burst;
  }

  // For requests of `latency_ns`.
  [[nodiscard]] Part choose_part(int64_t latency_ns) const {
    latency_ns = std::max<int64_t>(latency_ns, 1);
    Part part{.samples = plan_.samples_per_round, .dropped = plan_.dropped_per_round};
    if (plan_.mode == Mode::kThroughput) {
      part.burst = static_cast<int>(std::clamp<int64_t>(kBurstNs / latency_ns, 2, kMaxBurst));
    }
    if (plan_.samples_per_round > 0) return part;
    const int64_t sample_ns = latency_ns * part.burst;
    const int64_t fits = plan_.round_duration_ns / sample_ns;
    if (fits == 0 && sample_ns >= kLongNs) {
      part.dropped = 0;
    } else {
      const int64_t settling_ns = plan_.round_duration_ns / kSettlingPart;
      const int64_t settling = std::min<int64_t>(1 + (settling_ns - 1) / sample_ns, kMaxDropped);
      part.dropped = std::max(part.dropped, static_cast<int>(settling));
    }
    const int64_t least = part.dropped + (fits > 0 ? kMinKeptSamples : 1);
    part.samples =
        static_cast<int>(std::clamp<int64_t>(fits, least, std::max<int64_t>(least, kMaxSamples)));
    return part;
  }

  void run_rounds(int64_t start) {
    Looks looks(plan_.rule);
    HostProber prober(plan_.quiet_wide_ns, !agree_);
    result_.probes.push_back(prober.probe());
    int64_t patience_ns = plan_.patience_ns;
    int trials = kTrialRounds;
    for (int round = 0; round < plan_.rule.max_rounds; ++round) {
      const int64_t told_ns = report("round", round, plan_.rule.max_rounds);
      if (told_ns > kAwayNs) prober.forget_steal();
      const auto poll = [&] {
        if (progress_) progress_("round", round, plan_.rule.max_rounds);
      };
      if (patience_ns > 0) prober.wait_for_core(result_.probes.back(), patience_ns, poll);
      patience_ns -= result_.probes.back().waited_ns;
      const int64_t round_begin = now_ns();
      run_round(prober);
      if (alive_.empty()) {
        result_.stop_reason = StopReason::kFailed;
        return;
      }
      const int64_t away_ns = plan_.patience_ns - patience_ns + told_ns_;
      const int64_t spent_ns = agree_on(agree_, now_ns() - start - away_ns);
      const int64_t left_ns = plan_.rule.time_limit_ns - spent_ns;
      const bool has_room = left_ns > agree_on(agree_, now_ns() - round_begin);
      if (trials-- > 0 && has_room && correct_estimates()) {
        looks = Looks(plan_.rule);
        is_precise_ = false;
        round = -1;
        continue;
      }
      const bool is_last = round + 1 == plan_.rule.max_rounds;
      if (!plan_.rule.fixed && is_precise_enough(looks, is_last)) {
        result_.stop_reason = StopReason::kPrecise;
        return;
      }
      if (!is_last && left_ns < 0) {
        result_.stop_reason = StopReason::kTimeLimit;
        return;
      }
    }
    result_.stop_reason = plan_.rule.fixed ? StopReason::kFixedRounds : StopReason::kMaxRounds;
  }

  // A first request that compiled or recorded is no estimate of the next one. Runners that had few
  // samples, and have room for far more, are warmed up again, and the rounds so far are forgotten.
  // Whether there are such runners.
  bool correct_estimates() {
    std::vector<std::pair<size_t, int64_t>> wrong;  // and what their requests take
    for (const size_t index : alive_) {
      const double last_ns = result_.runners[index].values_ns.back();
      const int64_t found_ns = agree_on(agree_, static_cast<int64_t>(last_ns));
      const Part &part = parts_[index], right = choose_part(found_ns);
      if (part.is_least() && right.requests() >= kFarMore * part.requests()) {
        wrong.emplace_back(index, found_ns);
      }
    }
    if (wrong.empty()) return false;
    forget_rounds();
    for (const auto& [index, found_ns] : wrong) {
      guard(index, [&, found_ns = found_ns, index = index](Runner& runner, RunnerRounds& rounds) {
        const WarmupReport first = rounds.warmup;
        rounds.warmup = warm_up(runner, limit_warmup(static_cast<int>(runners_.size())), agree_);
        size_part(index, rounds.warmup.iterations > 1 ? find_time(rounds.warmup) : found_ns);
        rounds.warmup.iterations += first.iterations;
        rounds.warmup.elapsed_ns += first.elapsed_ns;
      });
    }
    return true;
  }

  void forget_rounds() {
    result_.probes = {result_.probes.back()};
    for (RunnerRounds& rounds : result_.runners) {
      RunnerRounds none;
      none.warmup = rounds.warmup;
      none.dropped = rounds.dropped;
      none.burst = rounds.burst;
      none.error = std::move(rounds.error);
      rounds = std::move(none);
    }
  }

  void run_round(HostProber& prober) {
    const std::vector<size_t> order = shuffle(alive_, random_);
    std::vector<Taken> taken(order.size());
    for (size_t place = 0; place < order.size(); ++place) {
      guard(order[place], [&](Runner& runner, RunnerRounds& rounds) {
        taken[place] = take_part(runner, rounds, parts_[order[place]], prober);
      });
    }
    result_.probes.push_back(prober.probe());
    for (size_t place = 0; place < order.size(); ++place) {
      if (taken[place].samples_ns.empty()) continue;
      commit(result_.runners[order[place]], static_cast<int>(place), taken[place]);
    }
  }

  // One in which the runner was rebuilt is taken again, unless it is rebuilt time after time.
  [[nodiscard]] Taken take_part(Runner& runner, const RunnerRounds& rounds, const Part& part,
                                HostProber& prober) const {
    const int attempts = rounds.rebuilt_rounds.empty() ? kMostAttempts : 1;
    const SampleLimit limit = limit_part(part);
    Taken taken;
    for (int attempt = 0; attempt == 0 || (taken.rebuilt && attempt < attempts); ++attempt) {
      const int64_t rebuilds = runner.count_rebuilds();
      if (agree_) agree_(0);  // a burst begins on all processes at once
      prober.begin_part(part.dropped);
      taken.samples_ns = plan_.mode == Mode::kLatency
                             ? time_latency(runner, part.samples, &prober, limit)
                             : time_throughput(runner, part.samples, part.burst, &prober, limit);
      taken.rebuilt = agree_if_any(agree_, runner.count_rebuilds() != rebuilds);
    }
    const auto sample_ns = static_cast<int64_t>(compute_median(taken.samples_ns));
    taken.waits = prober.end_part(taken.samples_ns.size(), sample_ns * part.burst);
    return taken;
  }

  // Of a number of samples that was asked for all are taken, and of one that was agreed on.
  [[nodiscard]] SampleLimit limit_part(const Part& part) const {
    if (plan_.samples_per_round > 0 || agree_) return {};
    return {kLongestPart * plan_.round_duration_ns, part.dropped + kMinKeptSamples};
  }

  static void commit(RunnerRounds& rounds, int place, Taken& taken) {
    const auto kept = std::span(taken.samples_ns).subspan(static_cast<size_t>(rounds.dropped));
    if (taken.rebuilt) rounds.rebuilt_rounds.push_back(static_cast<int>(rounds.values_ns.size()));
    rounds.values_ns.push_back(compute_median(kept));
    rounds.queued_ratios.push_back(taken.waits.queued_ratio);
    if (taken.waits.time_ns) rounds.waited_ns.push_back(*taken.waits.time_ns);
    rounds.kernel_use.push_back(taken.waits.kernel);
    rounds.positions.push_back(place);
    rounds.samples_ns.push_back(std::move(taken.samples_ns));
  }

  // Looks only where the rule declares it. Processes that agree need not have the same looks, since
  // the host of each is disturbed in other rounds: what one has seen holds until it looks again.
  [[nodiscard]] bool is_precise_enough(Looks& looks, bool is_last) {
    const int rounds = static_cast<int>(result_.probes.size()) - 1;
    const std::vector<int> counted = choose_rounds(rounds, find_disturbed_rounds(result_.probes));
    if (looks.is_due(static_cast<int>(counted.size()), is_last)) {
      is_precise_ = is_precise(make_table(counted), plan_.rule, plan_.seed);
    }
    return !agree_if_any(agree_, !is_precise_);
  }

  // Of the rounds that count.
  [[nodiscard]] RoundTable make_table(const std::vector<int>& counted) const {
    RoundTable table;
    table.columns = static_cast<int>(alive_.size());
    for (const int round : counted) {
      std::vector<double> row;
      row.reserve(alive_.size());
      for (const size_t index : alive_) {
        row.push_back(result_.runners[index].values_ns[static_cast<size_t>(round)]);
      }
      table.add_round(row);
    }
    return table;
  }

  std::vector<std::shared_ptr<Runner>> runners_;
  const RoundPlan& plan_;
  const Progress& progress_;
  const Agree& agree_;
  std::mt19937_64 random_;
  std::vector<size_t> alive_;
  std::vector<Part> parts_;  // of each runner
  bool is_precise_ = false;  // at the last look
  int64_t told_ns_ = 0;
  RoundsResult result_;
};

}  // namespace

void RoundPlan::check() const {
  const auto require = [](bool good, const std::string& message) {
    if (!good) throw InvalidArgumentError(message);
  };
  rule.check();
  require(round_duration_ns > 0, "round_duration_ns is " + std::to_string(round_duration_ns) +
                                     "; a round lasts longer than 0 ns");
  require(dropped_per_round >= 0,
          "dropped_per_round is " + std::to_string(dropped_per_round) + "; it cannot be negative");
  require(samples_per_round == 0 || samples_per_round > dropped_per_round,
          "samples_per_round is " + std::to_string(samples_per_round) + ", but the first " +
              std::to_string(dropped_per_round) + " of a round are dropped; take more");
  require(patience_ns >= 0 && quiet_wide_ns >= 0,
          "patience_ns and quiet_wide_ns cannot be negative; give 0 or more");
  require(warmup.iterations >= 0, "warm-up iterations are " + std::to_string(warmup.iterations) +
                                      "; give 0 (until steady) or more");
  require(warmup.limit_ns > 0,
          "the warm-up limit is " + std::to_string(warmup.limit_ns) + " ns; give a positive time");
}

RoundsResult measure_rounds(const std::vector<std::shared_ptr<Runner>>& runners,
                            const RoundPlan& plan, const Progress& progress, const Agree& agree) {
  plan.check();
  if (runners.empty()) throw InvalidArgumentError("no runner was given; give at least one");
  for (const auto& runner : runners) {
    if (plan.mode == Mode::kThroughput && runner->needs_prepare()) {
      throw InvalidArgumentError(runner->name() +
                                 " has to be prepared before each request, which a burst cannot "
                                 "do; measure its latency (mode 'latency')");
    }
  }
  const AffinityScope pinned(plan.cpus);
  if (!agree) return Measurement(runners, plan, progress, agree).run();
  if (plan.patience_ns > 0) {
    throw InvalidArgumentError(
        "patience is for one process: where several measure together, give none (patience_s=0)");
  }
  std::vector<std::shared_ptr<Runner>> paired;
  paired.reserve(runners.size());
  for (const auto& runner : runners) {
    paired.push_back(std::make_shared<PairedRunner>(runner, agree));
  }
  return Measurement(std::move(paired), plan, progress, agree).run();
}

}  // namespace ftax
