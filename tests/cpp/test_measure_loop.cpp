// What the rounds are made of: the timed loop, the warm-up, the host probe and pinning. Clocks on a
// shared machine promise only one side, so times are compared with lower bounds.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "core/clock.h"
#include "core/error.h"
#include "fake_runner.h"
#include "measure/affinity.h"
#include "measure/host_probe.h"
#include "measure/runner_wrapper.h"
#include "measure/thread_waits.h"
#include "measure/timed_loop.h"
#include "measure/warmup.h"

namespace ftax {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(a_latency_sample_is_one_request_and_one_wait) {
  Journal journal;
  FakeRunner runner("a", &journal);
  CHECK(time_latency(runner, 3).size() == 3);
  CHECK((journal == Journal{"a!", "a.", "a!", "a.", "a!", "a."}));
}

TEST(a_throughput_sample_is_a_burst_and_one_wait) {
  Journal journal;
  FakeRunner runner("a", &journal);
  CHECK(time_throughput(runner, 2, 3).size() == 2);
  CHECK((journal == Journal{"a!", "a!", "a!", "a.", "a!", "a!", "a!", "a."}));
}

TEST(samples_hold_the_time_of_their_own_request) {
  FakeRunner runner("a", nullptr, [](int call) { spin(call == 1 ? 8 * kMs : kMs / 10); });
  const int64_t start = now_ns();
  const std::vector<int64_t> samples = time_latency(runner, 3);
  const int64_t elapsed_ns = now_ns() - start;
  CHECK(samples[0] >= kMs / 10);
  CHECK(samples[1] >= 8 * kMs);
  CHECK(samples[2] >= kMs / 10);
  CHECK(samples[0] + samples[1] + samples[2] <= elapsed_ns);
}

TEST(a_throughput_sample_is_the_time_of_one_request) {
  FakeRunner runner("a", nullptr, [](int) { spin(kMs); });
  const int64_t start = now_ns();
  const int64_t sample_ns = time_throughput(runner, 1, 4).front();
  const int64_t elapsed_ns = now_ns() - start;
  CHECK(sample_ns >= kMs);
  CHECK(4 * sample_ns <= elapsed_ns);  // a sum over the burst would be four times too long
}

TEST(each_sample_is_prepared_before_its_time_begins) {
  Journal journal;
  FakeRunner runner("a", &journal);
  runner.on_prepare = [&journal] {
    journal.push_back("a?");
    spin(8 * kMs);
  };
  const int64_t start = now_ns();
  const std::vector<int64_t> samples = time_latency(runner, 3);
  const int64_t elapsed_ns = now_ns() - start;
  CHECK((journal == Journal{"a?", "a!", "a.", "a?", "a!", "a.", "a?", "a!", "a."}));
  // What was spent preparing is in no sample.
  CHECK(std::accumulate(samples.begin(), samples.end(), int64_t{0}) <= elapsed_ns - 24 * kMs);
}

TEST(a_wrapper_forwards_everything) {
  class Wrapper final : public RunnerWrapper {
   public:
    explicit Wrapper(std::shared_ptr<Runner> inner) : RunnerWrapper(std::move(inner)) {}
  };
  Journal journal;
  const auto inner = std::make_shared<FakeRunner>("a", &journal);
  Wrapper wrapper(inner);
  CHECK(!wrapper.needs_prepare());
  inner->on_prepare = [&journal] { journal.push_back("a?"); };
  CHECK(wrapper.needs_prepare());
  CHECK(wrapper.name() == "a");
  CHECK(wrapper.host() == Host::kCpp);
  CHECK(!wrapper.needs_gil());
  inner->rebuilds = 3;
  CHECK(wrapper.count_rebuilds() == 3);
  {
    const auto scope = wrapper.enter();
    wrapper.prepare();
    wrapper.enqueue();
    wrapper.synchronize();
  }
  CHECK((journal == Journal{"a+", "a?", "a!", "a.", "a-"}));
  CHECK_THROWS(Wrapper(nullptr), InvalidArgumentError, "None");
}

TEST(no_samples_call_nothing) {
  Journal journal;
  FakeRunner runner("a", &journal);
  CHECK(time_latency(runner, 0).empty());
  CHECK(journal.empty());
}

TEST(modes_and_hosts_have_names) {
  CHECK(std::string(to_string(Mode::kLatency)) == "latency");
  CHECK(std::string(to_string(Mode::kThroughput)) == "throughput");
  CHECK(std::string(to_string(Host::kPython)) == "python");
  CHECK(std::string(to_string(Host::kCpp)) == "cpp");
}

TEST(a_warm_up_of_given_length_has_that_length) {
  Journal journal;
  FakeRunner runner("a", &journal, [](int call) { spin(call < 4 ? 30 * kMs : kMs); });
  const WarmupReport report = warm_up(runner, {.iterations = 7});
  CHECK(report.iterations == 7);
  CHECK(report.steady);
  CHECK(journal.size() == 14);
  CHECK(report.latency_ns >= kMs);      // the median of the last two, ...
  CHECK(report.latency_ns < 30 * kMs);  // ... not of the slow first ones
  CHECK(report.elapsed_ns >= 123 * kMs);
}

TEST(a_warm_up_goes_on_while_latency_falls) {
  // 40 ms, then three of 20 ms, then 2 ms: two windows fall before two can be steady.
  FakeRunner runner("a", nullptr, [](int call) {
    spin(call == 0 ? 40 * kMs : call < 4 ? 20 * kMs : 2 * kMs);
  });
  const WarmupReport report = warm_up(runner, {});
  CHECK(report.steady);
  CHECK(report.iterations >= 1 + 2 + 2 + 2 + 2);
  CHECK(report.latency_ns >= 2 * kMs);
  CHECK(report.latency_ns < 20 * kMs);
}

TEST(a_warm_up_tells_the_mean_beside_the_median) {
  // Of windows of about twenty calls, in each of which one or two take 10 ms more.
  FakeRunner runner("a", nullptr, [](int call) { spin(call % 10 == 9 ? 11 * kMs : kMs); });
  const WarmupReport report = warm_up(runner, {});
  CHECK(report.latency_ns >= kMs && report.latency_ns < 2 * kMs);
  CHECK(report.mean_ns >= 14 * kMs / 10);
  // A first call that compiled is in no mean.
  FakeRunner compiling("b", nullptr, [](int call) { spin(call == 0 ? 100 * kMs : kMs); });
  CHECK(warm_up(compiling, {}).mean_ns < 50 * kMs);
}

TEST(one_window_without_a_fall_is_not_steady) {
  FakeRunner runner("a", nullptr, [](int) { spin(8 * kMs); });  // windows of three
  CHECK(warm_up(runner, {.min_iterations = 1}).iterations >= 1 + 2 + 2);
}

TEST(a_warm_up_makes_its_fewest_requests_however_steady) {
  FakeRunner runner("a", nullptr, [](int) { spin(8 * kMs); });  // windows of three
  CHECK(warm_up(runner, {.min_iterations = 12}).iterations >= 12);
}

TEST(a_warm_up_that_reaches_its_limit_says_so) {
  FakeRunner runner("a", nullptr, [](int) { spin(8 * kMs); });
  const WarmupReport report = warm_up(runner, {.limit_ns = 1});
  CHECK(!report.steady);
  CHECK(report.iterations == 1);  // nothing begins after it
}

TEST(a_warm_up_begins_no_request_that_would_not_fit) {
  FakeRunner runner("a", nullptr, [](int) { spin(8 * kMs); });
  CHECK(warm_up(runner, {.limit_ns = 20 * kMs}).iterations == 1);  // a window is two
}

TEST(a_warm_up_of_given_length_ends_at_its_limit_too) {
  FakeRunner runner("a", nullptr, [](int) { spin(8 * kMs); });
  const WarmupReport report = warm_up(runner, {.iterations = 7, .limit_ns = 12 * kMs});
  CHECK(!report.steady);
  CHECK(report.iterations <= 2);
  CHECK(report.latency_ns >= 8 * kMs);
}

TEST(samples_end_early_after_their_time_once_there_are_enough) {
  FakeRunner runner("a", nullptr, [](int) { spin(2 * kMs); });
  CHECK(time_latency(runner, 9, nullptr, {.time_ns = 1}).size() == 1);
  CHECK(time_latency(runner, 9, nullptr, {.time_ns = 1, .least = 4}).size() == 4);
  CHECK(time_latency(runner, 3, nullptr, {.time_ns = 1, .least = 4}).size() == 3);
  CHECK(time_throughput(runner, 9, 2, nullptr, {.time_ns = 1, .least = 2}).size() == 2);
}

TEST(a_probe_takes_time_and_counts_what_was_stolen) {
  HostProber prober;
  for (int i = 0; i < 3; ++i) {
    const HostProbe probe = prober.probe();
    CHECK(probe.loop_ns > 0);
    CHECK(probe.wide_ns > 0);
    CHECK(probe.steal_ticks >= 0);
  }
}

TEST(steal_is_that_of_the_cpus_in_use) {
  const auto sum = [](const std::vector<int>& cpus) {
    std::istringstream stat(
        "cpu  900 0 90 9000 9 0 9 777 0 0\n"
        "cpu0 100 0 10 1000 1 0 1 700 0 0\n"
        "cpu1 200 0 20 2000 2 0 2 70 5 0\n"
        "cpu10 300 0 30 3000 3 0 3 7 0 0\n"
        "intr 77 1 2\ncpu0 1 1 1 1 1 1 1 1\n");
    return sum_steal_ticks(stat, cpus);
  };
  CHECK(sum({1}) == 70);
  CHECK(sum({1, 10}) == 77);
  CHECK(sum({0, 1, 10}) == 777);
  CHECK(sum({}) == 0 && sum({2}) == 0);
  std::istringstream old("cpu0 100 0 10 1000\n");  // a kernel that knows of no steal
  CHECK(sum_steal_ticks(old, {0}) == 0);
}

TEST(a_thread_that_waits_for_its_cpu_is_seen_from_another) {
  if (!tells_waits()) return;
  const int cpu = list_allowed_cpus().front();
  const Neighbour one(cpu), other(cpu);  // one of them always waits
  ThreadWaits waits;
  waits.find_threads();
  spin(20 * kMs);
  waits.take(1);
  spin(200 * kMs);
  const Waits found = waits.take(kMs);
  CHECK(found.count >= 5);  // slices of a few ms
  CHECK(found.time_ns >= 5 * kMs);
  spin(20 * kMs);
  CHECK(waits.take(3600'000 * kMs).count == 0);
}

TEST(a_thread_that_has_ended_is_forgotten) {
  ThreadWaits waits;
  {
    const Neighbour neighbour(list_allowed_cpus().front());
    waits.find_threads();
  }
  CHECK(waits.take(1).count >= 0);
  waits.find_threads();
  CHECK(waits.take(1).count >= 0);
}

TEST(a_part_whose_requests_waited_spoils_its_round) {
  if (!tells_waits()) return;
  HostProber prober;
  static_cast<void>(prober.probe());
  {
    const int cpu = list_allowed_cpus().front();
    const Neighbour neighbour(cpu);
    const AffinityScope beside(std::vector<int>{cpu});
    prober.begin_part();
    spin(200 * kMs);
    // Half of the time went to the neighbour: if it was one request, that was longer for it; ten
    // thousand of 10 us were not, but for those few that a slice of the neighbour's fell into.
    const PartWaits waits = prober.end_part(1, 200 * kMs);
    CHECK(waits.queued_ratio == 1.0);
    CHECK(waits.time_ns >= 40 * kMs);
    prober.begin_part();
    spin(200 * kMs);
    CHECK(prober.end_part(10'000, kMs / 100).queued_ratio < kQueuedToleranceRatio);
    CHECK(prober.probe().queued_ratio == waits.queued_ratio);
  }
  CHECK(prober.probe().queued_ratio == 0.0);
}

TEST(waits_beside_processes_that_measure_the_same_spoil_no_round) {
  if (!tells_waits()) return;
  HostProber prober(0, false);
  static_cast<void>(prober.probe());
  const int cpu = list_allowed_cpus().front();
  const Neighbour neighbour(cpu);
  const AffinityScope beside(std::vector<int>{cpu});
  prober.begin_part();
  spin(200 * kMs);
  const PartWaits waits = prober.end_part(1, 200 * kMs);
  CHECK(waits.queued_ratio == 0.0);
  CHECK(waits.time_ns >= 40 * kMs);
}

TEST(what_threads_waited_during_dropped_samples_is_not_told) {
  if (!tells_waits()) return;
  const int cpu = list_allowed_cpus().front();
  HostProber prober;
  static_cast<void>(prober.probe());
  const AffinityScope alone(std::vector<int>{cpu});
  prober.begin_part(3);
  {
    const Neighbour neighbour(cpu);
    const AffinityScope beside(std::vector<int>{cpu});
    spin(200 * kMs);
  }
  for (int sample = 0; sample < 3; ++sample) prober.look(now_ns());
  const PartWaits first = prober.end_part(1, 200 * kMs);
  CHECK(first.queued_ratio == 1.0);
  CHECK(first.time_ns < 40 * kMs);
}

// Of requests that each wake another thread, how many waited for a CPU.
double wake_for_each_request() {
  HostProber prober;
  std::atomic<int> asked = 0, done = 0;
  std::thread worker([&] {
    for (int i = 1; i <= 2000; ++i) {
      asked.wait(i - 1);
      done = i;
      done.notify_one();
    }
  });
  static_cast<void>(prober.probe());  // knows the worker
  prober.begin_part();
  for (int i = 1; i <= 2000; ++i) {
    asked = i;
    asked.notify_one();
    done.wait(i - 1);
  }
  const double ratio = prober.end_part(2000, kMs / 100).queued_ratio;
  worker.join();
  return ratio;
}

TEST(a_thread_that_is_woken_for_each_short_request_waits_for_nobody) {
  if (!tells_waits()) return;
  // On a busy machine some do wait; a few us of each of 2,000 would be all of them, in each try.
  double least = 1.0;
  for (int i = 0; i < 20 && least >= 0.5; ++i) least = std::min(least, wake_for_each_request());
  CHECK(least < 0.5);
}

TEST(a_round_in_which_a_thread_waited_is_disturbed) {
  std::vector<HostProbe> probes(4, HostProbe{.loop_ns = 100, .wide_ns = 40});
  probes[1].queued_ratio = 0.2;
  probes[2].queued_ratio = 0.21;
  CHECK((find_disturbed_rounds(probes) == std::vector<int>{1}));
}

#if defined(__x86_64__)
TEST(the_chain_is_as_many_cycles_long_as_it_says) {
  // Multiplications that wait for each other take three cycles each on any x86-64 of today. What
  // additions take is not as plain: some processors make those of a small constant while they
  // rename registers, and a neighbour on the core's other thread slows those that it competes with.
  const auto time_multiplications = [] {
    const int64_t start = now_ns();
    uint64_t value = static_cast<uint64_t>(start);
    const uint64_t other = value | 1;
    for (int64_t i = 0; i < kChainCycles / 12; ++i) {  // four, or the loop takes as long
      asm volatile("imul %1, %0\n\timul %1, %0\n\timul %1, %0\n\timul %1, %0"
                   : "+r"(value)
                   : "r"(other));
    }
    return static_cast<double>(now_ns() - start);
  };
  HostProber prober;
  std::vector<std::pair<double, double>> tries;  // the ns that one takes, and its ratio
  for (int i = 0; i < 1000; ++i) {
    const double before_ns = time_multiplications();
    const auto chain_ns = static_cast<double>(prober.probe().loop_ns);
    const double after_ns = time_multiplications();
    const double around_ns = before_ns + after_ns;
    tries.emplace_back(chain_ns + around_ns, 2 * chain_ns / around_ns);
  }
  // Neighbours lengthen, so the fastest tries had none; the clock is one for all three of a try.
  std::sort(tries.begin(), tries.end());
  std::vector<double> ratios;
  for (size_t i = 0; i < 21; ++i) ratios.push_back(tries[i].second);
  std::sort(ratios.begin(), ratios.end());
  CHECK(ratios[10] > 0.97);
  CHECK(ratios[10] < 1.03);
}
#endif

TEST(looks_between_requests_are_rare_and_go_to_the_round_they_were_made_in) {
  HostProber prober;
  CHECK(prober.probe().within_ns == 0);
  prober.look(10 * kMs);
  CHECK(prober.probe().within_ns > 0);
  prober.look(10 * kMs + 1);  // too soon after the last
  CHECK(prober.probe().within_ns == 0);
  FakeRunner runner("a", nullptr, [](int) { spin(kMs); });
  const std::vector<int64_t> samples = time_latency(runner, 3, &prober);
  CHECK(samples.size() == 3);
  CHECK(prober.probe().within_ns > 0);
}

TEST(a_neighbour_within_a_round_disturbs_that_round_alone) {
  CHECK((find_disturbed_rounds({{9, 0, 50}, {9, 0, 50, 60}, {9, 0, 50, 61}, {9, 0, 50, 0}}) ==
         std::vector<int>{1}));
}

TEST(a_round_is_disturbed_by_theft_or_by_a_slow_probe) {
  // The fastest is 100, so 120 is the last undisturbed value. A round lies between two probes.
  CHECK((find_disturbed_rounds({{100, 0}, {120, 0}, {121, 0}, {100, 0}, {100, 0}, {100, 1}}) ==
         std::vector<int>{1, 2, 4}));
  CHECK((find_disturbed_rounds({{100, 0}, {120, 0}, {100, 0}}, 0.1) == std::vector<int>{0, 1}));
  CHECK((find_disturbed_rounds({{9, 0, 50}, {9, 0, 60}, {9, 0, 61}}) == std::vector<int>{1}));
  CHECK(find_disturbed_rounds({{100, 0}}).empty());
  CHECK(find_disturbed_rounds({}).empty());
}

TEST(a_neighbour_that_stays_for_most_rounds_is_found) {
  CHECK((find_disturbed_rounds({{9, 0, 90}, {9, 0, 90}, {9, 0, 90}, {9, 0, 40}, {9, 0, 40}}) ==
         std::vector<int>{0, 1, 2}));
}

TEST(a_clock_that_most_rounds_run_at_is_no_disturbance) {
  // Two probes at a higher clock, then both loops take 1.5 times as long; one meets a neighbour
  // too.
  CHECK((find_disturbed_rounds({{100, 0, 40},
                                {100, 0, 40},
                                {150, 0, 60},
                                {150, 0, 60},
                                {150, 0, 73, 73},
                                {150, 0, 60, 60},
                                {150, 0, 60, 60}}) == std::vector<int>{3, 4}));
  // A clock that falls for a moment is one.
  CHECK((find_disturbed_rounds({{100, 0, 40}, {100, 0, 40}, {150, 0, 60}, {100, 0, 40}}) ==
         std::vector<int>{1, 2}));
}

TEST(a_round_that_began_after_a_neighbour_left_is_not_disturbed_by_it) {
  const HostProbe quiet{.loop_ns = 9, .wide_ns = 50};
  HostProbe busy{.loop_ns = 9, .wide_ns = 90};
  CHECK((find_disturbed_rounds({quiet, busy, quiet}) == std::vector<int>{0, 1}));
  busy.left = true;
  CHECK((find_disturbed_rounds({quiet, busy, quiet}) == std::vector<int>{0}));
}

TEST(disturbed_rounds_count_where_too_few_others_are_left) {
  const auto first = [](int count) {
    std::vector<int> rounds(static_cast<size_t>(count));
    std::iota(rounds.begin(), rounds.end(), 0);
    return rounds;
  };
  CHECK((choose_rounds(7, {1, 6}) == std::vector<int>{0, 2, 3, 4, 5}));
  CHECK(choose_rounds(7, {1, 3, 6}).size() == 7);  // four others are too few
  CHECK((choose_rounds(15, first(10)) == std::vector<int>{10, 11, 12, 13, 14}));
  CHECK(choose_rounds(19, first(13)).size() == 19);   // six are less than a third
  CHECK(choose_rounds(100, first(80)).size() == 20);  // many enough, whatever their share
  CHECK(choose_rounds(100, first(81)).size() == 100);
  CHECK(choose_rounds(0, {}).empty());
}

TEST(waiting_ends_at_its_limit_while_the_neighbour_stays) {
  HostProber prober(1);  // no loop is as fast as that: somebody is always there
  HostProbe probe = prober.probe();
  int polls = 0;
  prober.wait_for_core(probe, 200 * kMs, [&] { ++polls; });
  CHECK(!probe.left);
  CHECK(probe.waited_ns >= 200 * kMs);
  CHECK(polls > 0);
}

TEST(nobody_waits_on_a_core_of_their_own) {
  HostProber prober;
  HostProbe probe = prober.probe();  // the fastest so far
  prober.wait_for_core(probe, 200 * kMs, [] {});
  CHECK(probe.waited_ns == 0);
  CHECK(!probe.left);
}

TEST(waiting_ends_when_the_neighbour_leaves) {
  HostProber prober(3600 * kMs * 1000);  // as slow as that: whoever is there has left at once
  HostProbe probe = prober.probe();
  probe.wide_ns = 7200 * kMs * 1000;
  prober.wait_for_core(probe, 60'000 * kMs, [] {});
  CHECK(probe.left);
  CHECK(probe.waited_ns < 60'000 * kMs);
}

TEST(pinning_holds_for_the_scope_and_is_undone) {
  const std::vector<int> before = list_allowed_cpus();
  {
    const AffinityScope scope({before.back()});
    CHECK((list_allowed_cpus() == std::vector<int>{before.back()}));
  }
  CHECK(list_allowed_cpus() == before);
}

TEST(an_empty_set_pins_nothing) {
  const std::vector<int> before = list_allowed_cpus();
  const AffinityScope scope({});
  CHECK(list_allowed_cpus() == before);
}

TEST(a_cpu_that_is_not_allowed_is_refused_and_nothing_changes) {
  const std::vector<int> before = list_allowed_cpus();
  const auto pin = [](std::vector<int> cpus) { const AffinityScope scope(cpus); };
  CHECK_THROWS(pin({before.front(), -1}), InvalidArgumentError, "CPU -1");
  CHECK_THROWS(pin({CPU_SETSIZE}), InvalidArgumentError, std::to_string(CPU_SETSIZE).c_str());
  const AffinityScope outer({before.front()});
  if (before.size() > 1) {
    const std::string allowed = "may use " + std::to_string(before.front());
    CHECK_THROWS(pin({before.back()}), InvalidArgumentError, allowed.c_str());
  }
  CHECK((list_allowed_cpus() == std::vector<int>{before.front()}));
}

}  // namespace
}  // namespace ftax
