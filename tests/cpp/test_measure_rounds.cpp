// Interleaved rounds: who runs when, what a failure or Ctrl-C leaves behind, and when it ends.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "check.h"
#include "core/statistics.h"
#include "fake_runner.h"
#include "measure/rounds.h"

namespace ftax {
namespace {

constexpr int64_t kMs = 1'000'000;
using Runners = std::vector<std::shared_ptr<Runner>>;

// One warm-up call, and two samples a round of which the first is dropped: call 0 is the warm-up,
// calls 2r + 1 and 2r + 2 are those of round r.
RoundPlan make_plan(int rounds) {
  RoundPlan plan;
  plan.rule.fixed = true;
  plan.rule.max_rounds = rounds;
  plan.warmup.iterations = 1;
  plan.samples_per_round = 2;
  return plan;
}

std::shared_ptr<FakeRunner> make(const std::string& name, Journal* journal = nullptr,
                                 FakeRunner::Body body = {}) {
  return std::make_shared<FakeRunner>(name, journal, std::move(body));
}

std::shared_ptr<FakeRunner> make_failing(int at_call) {
  return make("failing", nullptr, [at_call](int call) {
    if (call == at_call) throw std::runtime_error("call " + std::to_string(call) + " broke");
  });
}

std::shared_ptr<FakeRunner> make_interrupting(int at_call) {
  return make("interrupting", nullptr, [at_call](int call) {
    if (call == at_call) throw Interrupted("Ctrl-C");
  });
}

std::vector<std::vector<int>> list_positions(const RoundsResult& result) {
  std::vector<std::vector<int>> positions;
  for (const RunnerRounds& rounds : result.runners) positions.push_back(rounds.positions);
  return positions;
}

TEST(every_runner_has_one_part_in_each_round) {
  Journal journal;
  const Runners runners = {make("a", &journal), make("b", &journal), make("c", &journal)};
  const RoundsResult result =
      measure_rounds(runners, make_plan(5), [&](const char* phase, int done, int) {
        if (std::string(phase) == "round") journal.push_back("round " + std::to_string(done));
      });
  auto event = std::find(journal.begin(), journal.end(), "round 0");
  for (int round = 0; round < 5; ++round) {
    CHECK(*event++ == "round " + std::to_string(round));
    std::string order;
    for (int place = 0; place < 3; ++place) {
      const std::string name = event->substr(0, 1);
      const Journal part = {name + "+", name + "!", name + ".", name + "!", name + ".", name + "-"};
      CHECK(std::equal(part.begin(), part.end(), event));
      event += 6;
      order += name;
      const auto index = static_cast<size_t>(name[0] - 'a');
      CHECK(result.runners[index].positions[static_cast<size_t>(round)] == place);
    }
    std::sort(order.begin(), order.end());
    CHECK(order == "abc");
  }
  CHECK(event == journal.end());
}

TEST(the_seed_decides_the_order) {
  const auto order = [](uint64_t seed) {
    RoundPlan plan = make_plan(20);
    plan.seed = seed;
    return list_positions(measure_rounds({make("a"), make("b"), make("c")}, plan));
  };
  CHECK(order(1) == order(1));
  CHECK(order(1) != order(2));
}

TEST(every_runner_comes_first_about_as_often) {
  const RoundsResult result = measure_rounds({make("a"), make("b"), make("c")}, make_plan(600));
  for (const std::vector<int>& positions : list_positions(result)) {
    for (int place = 0; place < 3; ++place) {
      const auto count = std::count(positions.begin(), positions.end(), place);
      CHECK(count > 150);  // 200 expected, of standard deviation 11.5; the seed is fixed
      CHECK(count < 250);
    }
  }
}

TEST(a_round_is_the_median_of_its_samples_after_the_dropped_ones) {
  RoundPlan plan = make_plan(3);
  plan.samples_per_round = 5;
  plan.dropped_per_round = 2;
  // The first two samples of each round are slow. Call 0 is the warm-up.
  const auto runner = make("a", nullptr, [](int call) { spin((call - 1) % 5 < 2 ? 4 * kMs : 1); });
  const RunnerRounds rounds = measure_rounds({runner}, plan).runners.front();
  for (size_t round = 0; round < 3; ++round) {
    const std::vector<int64_t>& samples = rounds.samples_ns[round];
    CHECK(samples.size() == 5);
    CHECK(samples[0] >= 4 * kMs && samples[1] >= 4 * kMs);
    CHECK(rounds.values_ns[round] == compute_median(std::span(samples).subspan(2)));
  }
}

TEST(a_fixed_number_of_rounds_is_kept_whatever_the_precision) {
  RoundPlan plan = make_plan(7);
  plan.rule.target_ratio = 1e9;
  const RoundsResult result = measure_rounds({make("a")}, plan);
  CHECK(result.runners.front().values_ns.size() == 7);
  CHECK(result.probes.size() == 8);
  CHECK(result.stop_reason == StopReason::kFixedRounds);
  CHECK(result.elapsed_ns > 0);
}

TEST(patience_is_for_all_rounds_together_and_beyond_the_time_limit) {
  RoundPlan plan = make_plan(0);
  plan.rule = {.min_rounds = 5, .max_rounds = 5, .time_limit_ns = 60 * kMs, .fixed = true};
  plan.quiet_wide_ns = 1;  // a neighbour that never leaves
  plan.patience_ns = 100 * kMs;
  const RoundsResult result = measure_rounds({make("a")}, plan);
  CHECK(result.stop_reason == StopReason::kFixedRounds);
  CHECK(result.probes.front().waited_ns >= 100 * kMs);
  for (size_t round = 1; round < result.probes.size(); ++round)
    CHECK(result.probes[round].waited_ns == 0);
  plan.patience_ns = -1;
  CHECK_THROWS(plan.check(), InvalidArgumentError, "patience_ns");
}

TEST(rounds_end_at_the_first_look_that_is_precise) {
  RoundPlan plan = make_plan(0);
  plan.rule = {.min_rounds = 4, .max_rounds = 50, .target_ratio = 1e9};
  const RoundsResult result = measure_rounds({make("a"), make("b")}, plan);
  CHECK(result.runners.front().values_ns.size() == 4);
  CHECK(result.stop_reason == StopReason::kPrecise);
}

TEST(rounds_end_at_their_most_when_never_precise) {
  RoundPlan plan = make_plan(0);
  plan.rule = {.min_rounds = 4, .max_rounds = 9, .target_ratio = 1e-12};
  // Latencies of two rounds can be the same to the ns, but not those of nine that grow.
  const auto runner = make("a", nullptr, [](int call) { spin(call * kMs / 10); });
  const RoundsResult result = measure_rounds({runner}, plan);
  CHECK(result.runners.front().values_ns.size() == 9);
  CHECK(result.stop_reason == StopReason::kMaxRounds);
}

TEST(a_time_limit_leaves_one_round) {
  RoundPlan plan = make_plan(50);
  plan.rule.time_limit_ns = 1;
  const RoundsResult result = measure_rounds({make("a")}, plan);
  CHECK(result.runners.front().values_ns.size() == 1);
  CHECK(result.stop_reason == StopReason::kTimeLimit);
}

TEST(of_slow_requests_few_are_made_after_the_time_limit) {
  // Three runners of 60 ms in 80 ms: a request of the first and one of the second warm up, and the
  // first round is the last. They are counted: a busy machine makes any time longer.
  RoundPlan plan;
  plan.rule.time_limit_ns = 80 * kMs;
  for (const Mode mode : {Mode::kLatency, Mode::kThroughput}) {
    plan.mode = mode;
    int calls = 0;
    const auto sleep = [&](int) {
      ++calls;
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
    };
    const Runners runners = {make("a", nullptr, sleep), make("b", nullptr, sleep),
                             make("c", nullptr, sleep)};
    const RoundsResult result = measure_rounds(runners, plan);
    CHECK(result.stop_reason == StopReason::kTimeLimit);
    const int burst = mode == Mode::kLatency ? 1 : 2;
    CHECK(calls == 2 + 3 * burst);
    for (const RunnerRounds& rounds : result.runners) CHECK(rounds.values_ns.size() == 1);
    CHECK(result.runners[0].warmup.iterations == 1);
    CHECK(result.runners[2].warmup.iterations == 0 && !result.runners[2].warmup.steady);
  }
}

TEST(a_part_that_takes_much_longer_than_it_was_planned_for_ends_early) {
  RoundPlan plan;
  plan.rule = {.max_rounds = 1 + 1, .fixed = true};
  plan.warmup.iterations = 2;
  plan.round_duration_ns = 2 * kMs;
  // 10 us in the warm-up, so 200 samples, of which 50 are dropped; then 2 ms each.
  const auto runner = make("a", nullptr, [](int call) { spin(call < 2 ? kMs / 100 : 2 * kMs); });
  const RunnerRounds rounds = measure_rounds({runner}, plan).runners.front();
  for (const auto& samples : rounds.samples_ns)
    CHECK(static_cast<int>(samples.size()) == rounds.dropped + 3);
}

TEST(rounds_that_do_not_count_are_none_of_the_fewest) {
  if (!tells_waits()) return;
  const int cpu = list_allowed_cpus().front();
  RoundPlan plan = make_plan(0);
  plan.rule = {.min_rounds = 36, .max_rounds = 90, .target_ratio = 1e9};
  plan.cpus = {cpu};
  // In every other of the first 36 rounds a neighbour shares the core. On a quiet machine the rest
  // is all that counts, and too few to stop; on a busy one other rounds may be disturbed too.
  std::unique_ptr<Neighbour> neighbour;
  const auto progress = [&](const char*, int done, int) {
    neighbour.reset();
    if (done < 36 && done % 2 == 0) neighbour = std::make_unique<Neighbour>(cpu);
  };
  const auto runner = make("a", nullptr, [](int) { spin(6 * kMs); });
  const RoundsResult result = measure_rounds({runner}, plan, progress);
  const auto rounds = static_cast<int>(result.runners.front().values_ns.size());
  const std::vector<int> disturbed = find_disturbed_rounds(result.probes);
  CHECK(std::count_if(disturbed.begin(), disturbed.end(), [](int r) { return r < 36; }) >= 12);
  CHECK(result.stop_reason != StopReason::kPrecise ||
        choose_rounds(rounds, disturbed).size() >= 36);
}

TEST(time_spent_in_the_progress_callback_counts_towards_no_limit) {
  RoundPlan plan = make_plan(0);
  plan.rule = {.min_rounds = 6, .max_rounds = 6, .target_ratio = 1e-12, .time_limit_ns = 600 * kMs};
  int64_t waited_ns = 0;
  const auto wait = [&](const char*, int, int) {  // for a turn, say
    const int64_t start = now_ns();
    spin(150 * kMs);
    waited_ns += now_ns() - start;
  };
  // Each call takes longer than the last: six equal values would be as precise as can be.
  const auto runner = make("a", nullptr, [](int call) { spin(call * kMs / 10); });
  const RoundsResult result = measure_rounds({runner}, plan, wait);
  // The waits are longer than the limit. Only a machine that stands still as long may reach it.
  const bool stood_still = result.elapsed_ns - waited_ns > plan.rule.time_limit_ns;
  CHECK(result.stop_reason == StopReason::kMaxRounds || stood_still);
  CHECK(result.runners.front().values_ns.size() == 6 || stood_still);
  CHECK(result.elapsed_ns > 900 * kMs);
}

TEST(a_runner_that_throws_leaves_and_the_others_go_on) {
  // Call 5 is the first of round 2.
  const RoundsResult result = measure_rounds({make("a"), make_failing(5), make("c")}, make_plan(6));
  CHECK(result.runners[0].values_ns.size() == 6);
  CHECK(result.runners[0].error.empty());
  CHECK(result.runners[1].values_ns.size() == 2);
  CHECK(result.runners[1].samples_ns.size() == 2);
  CHECK(result.runners[1].positions.size() == 2);
  CHECK(result.runners[1].error == "call 5 broke");
  CHECK(result.runners[2].values_ns.size() == 6);
  CHECK(result.stop_reason == StopReason::kFixedRounds);
}

TEST(a_runner_that_throws_in_the_warm_up_has_no_rounds) {
  const RoundsResult result = measure_rounds({make_failing(0), make("b")}, make_plan(3));
  CHECK(result.runners[0].values_ns.empty());
  CHECK(result.runners[0].error == "call 0 broke");
  CHECK(result.runners[1].values_ns.size() == 3);
}

TEST(a_runner_that_cannot_be_entered_leaves_too) {
  const auto runner = make("a");
  int entered = 0;
  runner->on_enter = [&] {
    if (++entered == 3) throw UnavailableError("no stream");  // warm-up, round 0, round 1
  };
  const RoundsResult result = measure_rounds({runner, make("b")}, make_plan(3));
  CHECK(result.runners[0].values_ns.size() == 1);
  CHECK(result.runners[0].error == "no stream");
  CHECK(result.runners[1].values_ns.size() == 3);
}

TEST(precision_is_judged_by_the_runners_that_are_left) {
  RoundPlan plan = make_plan(0);
  plan.rule = {.min_rounds = 4, .max_rounds = 50, .target_ratio = 1e9};
  const RoundsResult result = measure_rounds({make_failing(3), make("b")}, plan);
  CHECK(result.runners[0].values_ns.size() == 1);
  CHECK(result.runners[1].values_ns.size() == 4);
  CHECK(result.stop_reason == StopReason::kPrecise);
}

TEST(when_all_have_failed_the_earlier_rounds_remain) {
  RoundPlan plan = make_plan(0);
  plan.rule = {.min_rounds = 3, .max_rounds = 50};
  // Call 5 is in round 2, after which precision is looked at: of nobody.
  const RoundsResult result = measure_rounds({make_failing(5), make_failing(3)}, plan);
  CHECK(result.runners[0].values_ns.size() == 2);
  CHECK(result.runners[1].values_ns.size() == 1);
  CHECK(result.stop_reason != StopReason::kPrecise);
}

TEST(an_interrupted_round_is_dropped_and_earlier_ones_stay) {
  // Calls 7 and 8 are those of round 3.
  for (const int call : {7, 8}) {
    const RoundsResult result =
        measure_rounds({make("a"), make_interrupting(call), make("c")}, make_plan(50));
    CHECK(result.stop_reason == StopReason::kInterrupted);
    CHECK(result.probes.size() == 4);
    for (const RunnerRounds& rounds : result.runners) {
      CHECK(rounds.values_ns.size() == 3);
      CHECK(rounds.samples_ns.size() == 3);
      CHECK(rounds.positions.size() == 3);
      CHECK(rounds.error.empty());
    }
  }
}

TEST(an_interrupt_in_the_warm_up_leaves_no_rounds) {
  const RoundsResult result = measure_rounds({make("a"), make_interrupting(0)}, make_plan(5));
  CHECK(result.stop_reason == StopReason::kInterrupted);
  CHECK(result.probes.empty());
  CHECK(result.runners[0].values_ns.empty());
}

TEST(an_interrupt_between_rounds_keeps_them_all) {
  const RoundsResult result =
      measure_rounds({make("a")}, make_plan(50), [](const char* phase, int done, int) {
        if (std::string(phase) == "round" && done == 4) throw Interrupted("Ctrl-C");
      });
  CHECK(result.stop_reason == StopReason::kInterrupted);
  CHECK(result.runners.front().values_ns.size() == 4);
}

TEST(progress_is_told_between_rounds_and_never_inside_one) {
  const std::vector<std::shared_ptr<FakeRunner>> fakes = {make("a"), make("b")};
  std::vector<std::string> told;
  const auto progress = [&](const char* phase, int done, int total) {
    for (const auto& fake : fakes) CHECK(!fake->is_inside());
    told.push_back(std::string(phase) + " " + std::to_string(done) + "/" + std::to_string(total));
  };
  static_cast<void>(measure_rounds({fakes[0], fakes[1]}, make_plan(3), progress));
  CHECK((told == std::vector<std::string>{"warmup 0/2", "warmup 1/2", "warmup 2/2", "round 0/3",
                                          "round 1/3", "round 2/3"}));
}

TEST(what_progress_throws_reaches_the_caller) {
  const auto progress = [](const char*, int, int) { throw std::logic_error("a broken bar"); };
  CHECK_THROWS(measure_rounds({make("a")}, make_plan(3), progress), std::logic_error,
               "a broken bar");
}

TEST(samples_fill_the_duration_of_a_round) {
  RoundPlan plan = make_plan(2);
  plan.samples_per_round = 0;
  plan.round_duration_ns = 20 * kMs;
  const auto runner = make("a", nullptr, [](int) { spin(kMs); });
  const RunnerRounds rounds = measure_rounds({runner}, plan).runners.front();
  const size_t samples = rounds.samples_ns[0].size();
  CHECK(samples >= 4);   // one dropped and three kept, however slow the machine was in the warm-up
  CHECK(samples <= 20);  // of at least 1 ms each
}

TEST(samples_that_begin_in_the_first_quarter_of_a_round_are_dropped) {
  RoundPlan plan = make_plan(2);
  plan.samples_per_round = 0;
  plan.round_duration_ns = 20 * kMs;
  for (const auto& [sample_ns, most] : {std::pair{kMs, 5}, {4 * kMs, 2}, {6 * kMs, 1}}) {
    const auto runner = make("a", nullptr, [=](int) { spin(sample_ns); });
    const RunnerRounds rounds = measure_rounds({runner}, plan).runners.front();
    const int64_t warm_ns = rounds.warmup.mean_ns;   // what was expected of a sample
    if (warm_ns > plan.round_duration_ns) continue;  // the machine stood still meanwhile
    CHECK(rounds.dropped == (5 * kMs + warm_ns - 1) / warm_ns);
    CHECK(rounds.dropped <= most);
    const int kept = static_cast<int>(rounds.samples_ns[0].size()) - rounds.dropped;
    CHECK(kept >= 3);
  }
}

TEST(of_samples_too_short_to_count_all_at_most_a_quarter_is_dropped) {
  RoundPlan plan = make_plan(2);
  plan.samples_per_round = 0;
  plan.round_duration_ns = 100 * kMs;
  const RunnerRounds rounds = measure_rounds({make("a")}, plan).runners.front();
  CHECK(rounds.samples_ns[0].size() == 2000);
  CHECK(rounds.dropped == 500);
}

TEST(warming_up_takes_at_most_half_of_the_time) {
  RoundPlan plan = make_plan(2);
  plan.warmup = WarmupPlan();
  plan.rule.time_limit_ns = 40 * kMs;
  int calls = 0;
  const auto runner = make("a", nullptr, [&](int) { spin(std::max(1, 20 - calls++) * kMs); });
  const RunnerRounds rounds = measure_rounds({runner}, plan).runners.front();
  CHECK(!rounds.warmup.steady);
  CHECK(rounds.warmup.iterations == 1);  // a window would outlast the 20 ms
}

TEST(page_faults_of_the_samples_that_count_are_counted) {
  constexpr size_t kPages = 16, kPage = 4096;
  RoundPlan plan = make_plan(3);
  plan.samples_per_round = 5;
  plan.dropped_per_round = 2;
  const auto runner = make("faulting", nullptr, [](int) {
    void* memory =
        mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < kPages; ++page)
      static_cast<volatile char*>(memory)[page * kPage] = 1;
    munmap(memory, kPages * kPage);
  });
  const RoundsResult result = measure_rounds({runner, make("idle")}, plan);
  CHECK(result.runners[0].kernel_use.size() == 3);
  for (const KernelUse& use : result.runners[0].kernel_use) {
    CHECK(use.page_faults >= static_cast<int64_t>(3 * kPages));
#ifndef __SANITIZE_THREAD__  // whose shadow of the memory has faults too
    CHECK(use.page_faults < static_cast<int64_t>(5 * kPages));  // not of those that are dropped
#endif
    CHECK(use.system_ns >= 0);
  }
  for (const KernelUse& use : result.runners[1].kernel_use)
    CHECK(use.page_faults < static_cast<int64_t>(kPages));
}

TEST(calls_of_which_some_are_slow_have_the_time_they_need) {
  // Each tenth of 10 us takes 4 ms more, so that 2000 calls of a round, as many as the others let
  // fit, would be cut short; and each tenth of 1 ms takes 200 more, of which the mean lets one fit.
  for (const auto& [call_ns, slow_ns, least] :
       {std::tuple{kMs / 100, 4 * kMs, 10}, std::tuple{kMs, 200 * kMs, 3}}) {
    RoundPlan plan = make_plan(2);
    plan.warmup = WarmupPlan{};
    plan.samples_per_round = 0;
    const auto runner = make("a", nullptr, [call_ns = call_ns, slow_ns = slow_ns](int call) {
      spin(call % 10 == 9 ? slow_ns : call_ns);
    });
    const RunnerRounds rounds = measure_rounds({runner}, plan).runners.front();
    for (const std::vector<int64_t>& samples : rounds.samples_ns)
      CHECK(static_cast<int>(samples.size()) >= rounds.dropped + least);
  }
}

// A runner whose first calls compile, or what else takes them 100 ms; all others take 0.2 ms.
std::shared_ptr<FakeRunner> make_compiling(int calls) {
  return make("compiling", nullptr,
              [calls](int call) { spin(call < calls ? 100 * kMs : kMs / 5); });
}

// Of rounds that hold such a runner: as many samples as fit, the same number in each, none of them
// of a call that compiled.
void check_rounds(const RunnerRounds& rounds, size_t count) {
  CHECK(rounds.values_ns.size() == count);
  CHECK(rounds.positions.size() == count && rounds.queued_ratios.size() == count);
  CHECK(rounds.waited_ns.size() == (tells_waits() ? count : 0));
  CHECK(rounds.dropped > 1);
  for (const std::vector<int64_t>& samples : rounds.samples_ns) {
    CHECK(samples.size() >= 4);
    CHECK(static_cast<int>(samples.size()) >= 2 * rounds.dropped);
  }
}

TEST(a_first_call_that_compiles_is_no_estimate) {
  RoundPlan plan = make_plan(6);
  plan.samples_per_round = 0;
  plan.rule.time_limit_ns = 2'000 * kMs;
  // After a first call of 100 ms half of 0.4 s has no room for two more: it was the estimate.
  for (const bool until_steady : {true, false}) {
    if (until_steady) {
      plan.warmup = WarmupPlan{.limit_ns = 150 * kMs};
    } else {
      plan.warmup.iterations = 1;
    }
    const RoundsResult result = measure_rounds({make("other"), make_compiling(1)}, plan);
    CHECK(result.probes.size() == 6 + 1);
    CHECK(result.runners[0].values_ns.size() == 6);
    check_rounds(result.runners[1], 6);
    CHECK(result.runners[1].warmup.iterations > 1);
    CHECK(result.runners[1].warmup.elapsed_ns > 100 * kMs);
  }
}

TEST(nor_are_the_first_few_calls) {
  RoundPlan plan = make_plan(6);  // one request warms up
  plan.samples_per_round = 0;
  check_rounds(measure_rounds({make_compiling(4)}, plan).runners.front(), 6);
}

TEST(a_first_call_that_compiles_sizes_no_burst) {
  RoundPlan plan = make_plan(6);
  plan.samples_per_round = 0;
  plan.mode = Mode::kThroughput;
  const RunnerRounds rounds = measure_rounds({make_compiling(1)}, plan).runners.front();
  CHECK(rounds.burst > 2);  // of 5 ms
  CHECK(rounds.values_ns.size() == 6);
}

TEST(an_estimate_is_corrected_only_while_there_is_time) {
  RoundPlan plan = make_plan(6);
  plan.samples_per_round = 0;
  plan.rule.time_limit_ns = 1;
  const RunnerRounds rounds = measure_rounds({make_compiling(1)}, plan).runners.front();
  CHECK(rounds.samples_ns.size() == 1 && rounds.samples_ns[0].size() == 1);
}

// Two samples a round: calls 1 and 2 are to be those of round 0. `is_rebuilt` says in which calls
// it is, which take 20 ms.
RunnerRounds measure_rebuilt(int& calls, const std::function<bool(int call)>& is_rebuilt) {
  FakeRunner* self = nullptr;
  const auto runner = make("capture", nullptr, [&](int call) {
    calls = call + 1;
    if (!is_rebuilt(call)) return;
    ++self->rebuilds;
    spin(20 * kMs);
  });
  self = runner.get();
  return measure_rounds({runner}, make_plan(3)).runners.front();
}

TEST(a_part_in_which_the_runner_was_rebuilt_is_taken_again) {
  int calls = 0;
  const RunnerRounds rounds =
      measure_rebuilt(calls, [](int call) { return call == 4 || call == 6; });
  CHECK(calls == 1 + 2 * 3 + 2 * 2);
  CHECK(rounds.values_ns.size() == 3 && rounds.rebuilt_rounds.empty());
  for (const double value_ns : rounds.values_ns) CHECK(value_ns < 20e6);
}

TEST(what_is_rebuilt_time_after_time_is_measured_so_and_says_it) {
  int calls = 0;
  const RunnerRounds rounds = measure_rebuilt(calls, [](int call) { return call > 2; });
  CHECK(calls == 1 + 2 + 4 * 2 + 2);  // once it has shown that it always is, once a round
  CHECK((rounds.rebuilt_rounds == std::vector<int>{1, 2}));
  for (const int round : {1, 2}) CHECK(rounds.values_ns[static_cast<size_t>(round)] >= 20e6);
}

TEST(a_request_longer_than_a_round_is_kept_once) {
  RoundPlan plan = make_plan(2);
  plan.samples_per_round = 0;
  plan.round_duration_ns = kMs;
  for (const bool is_long : {false, true}) {
    const auto runner = make("a", nullptr, [=](int) { spin(is_long ? 60 * kMs : 2 * kMs); });
    const RunnerRounds rounds = measure_rounds({runner}, plan).runners.front();
    CHECK(rounds.dropped == (is_long ? 0 : 1));
    for (const std::vector<int64_t>& samples : rounds.samples_ns) {
      CHECK(samples.size() == (is_long ? 1u : 2u));
    }
  }
}

TEST(what_needs_preparing_has_a_latency_and_no_throughput) {
  const auto prepared = make("cold");
  int preparations = 0;
  prepared->on_prepare = [&preparations] { ++preparations; };
  RoundPlan plan = make_plan(2);
  CHECK(measure_rounds({prepared}, plan).runners[0].error.empty());
  CHECK(preparations == 1 + 2 * 2);  // the warm-up's call, and two samples in two rounds
  plan.mode = Mode::kThroughput;
  CHECK_THROWS(measure_rounds({make("warm"), prepared}, plan), InvalidArgumentError, "cold");
}

TEST(throughput_waits_once_for_each_burst) {
  Journal journal;
  RoundPlan plan = make_plan(2);
  plan.mode = Mode::kThroughput;
  const auto runner = make("a", &journal, [](int) { spin(kMs); });
  const RunnerRounds rounds = measure_rounds({runner}, plan).runners.front();
  CHECK(rounds.burst >= 2);
  CHECK(rounds.burst <= 5);  // about 5 ms of requests of at least 1 ms
  CHECK(rounds.values_ns.front() >= 1e6);
  const auto enqueued = std::count(journal.begin(), journal.end(), "a!");
  const auto waited = std::count(journal.begin(), journal.end(), "a.");
  CHECK(enqueued == 1 + 4 * rounds.burst);  // the warm-up, and two rounds of two samples
  CHECK(waited == 1 + 4);
}

TEST(bursts_fill_the_duration_of_a_round) {
  RoundPlan plan = make_plan(2);
  plan.mode = Mode::kThroughput;
  plan.samples_per_round = 0;
  plan.round_duration_ns = 20 * kMs;
  const auto runner = make("a", nullptr, [](int) { spin(kMs); });
  const size_t samples = measure_rounds({runner}, plan).runners[0].samples_ns[0].size();
  CHECK(samples >= 4);
  CHECK(samples <= 10);  // of two requests at least, of at least 1 ms each
}

TEST(latency_has_bursts_of_one) {
  CHECK(measure_rounds({make("a")}, make_plan(2)).runners.front().burst == 1);
}

TEST(the_measuring_thread_is_pinned_and_released) {
  const std::vector<int> before = list_allowed_cpus();
  std::vector<std::vector<int>> seen;
  RoundPlan plan = make_plan(2);
  plan.cpus = {before.back()};
  const auto runner = make("a", nullptr, [&](int) { seen.push_back(list_allowed_cpus()); });
  static_cast<void>(measure_rounds({runner}, plan));
  CHECK(seen.size() == 1 + 4);
  for (const std::vector<int>& cpus : seen) CHECK(cpus == plan.cpus);
  CHECK(list_allowed_cpus() == before);
}

TEST(impossible_plans_are_named) {
  const auto check = [](auto change) {
    RoundPlan plan = make_plan(3);
    change(plan);
    static_cast<void>(measure_rounds({make("a")}, plan));
  };
  CHECK_THROWS(check([](RoundPlan& p) { p.rule.max_rounds = 0; }), InvalidArgumentError,
               "max_rounds is 0");
  CHECK_THROWS(check([](RoundPlan& p) { p.round_duration_ns = 0; }), InvalidArgumentError,
               "round_duration_ns is 0");
  CHECK_THROWS(check([](RoundPlan& p) { p.dropped_per_round = -1; }), InvalidArgumentError,
               "dropped_per_round is -1");
  CHECK_THROWS(check([](RoundPlan& p) { p.dropped_per_round = 2; }), InvalidArgumentError,
               "samples_per_round is 2");
  CHECK_THROWS(check([](RoundPlan& p) { p.samples_per_round = -1; }), InvalidArgumentError,
               "samples_per_round is -1");
  CHECK_THROWS(check([](RoundPlan& p) { p.warmup.iterations = -1; }), InvalidArgumentError,
               "iterations are -1");
  CHECK_THROWS(check([](RoundPlan& p) { p.warmup.limit_ns = 0; }), InvalidArgumentError,
               "limit is 0");
  CHECK_THROWS(check([](RoundPlan& p) { p.cpus = {-1}; }), InvalidArgumentError, "CPU -1");
  CHECK_THROWS(measure_rounds({}, make_plan(3)), InvalidArgumentError, "no runner");
}

}  // namespace
}  // namespace ftax
