// Rounds that several processes measure together: here threads, each with runners and a plan like
// those of the others. What they take differs, and so does what goes wrong in one of them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "fake_runner.h"
#include "measure/rounds.h"

namespace ftax {
namespace {

constexpr int64_t kMs = 1'000'000;

// Those who agree. One that has left is missed by all who agree later.
class Team {
 public:
  explicit Team(int size) : size_(size) {}

  int64_t agree(int64_t own) {
    std::unique_lock lock(mutex_);
    largest_ = given_ == 0 ? own : std::max(largest_, own);
    const int64_t turn = turn_;
    if (++given_ == size_) {
      given_ = 0;
      ++turn_;
      agreed_ = largest_;
      changed_.notify_all();
    }
    changed_.wait_for(lock, std::chrono::seconds(60),
                      [&] { return turn_ != turn || has_lost_one_; });
    if (turn_ == turn) throw UnavailableError("another one has left");
    return agreed_;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    has_lost_one_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int size_, given_ = 0;
  int64_t largest_ = 0, agreed_ = 0, turn_ = 0;
  bool has_lost_one_ = false;
};

struct Measured {
  RoundsResult result;
  std::string error;
  std::vector<int> calls;  // of each runner
};

struct Part {
  std::vector<FakeRunner::Body> bodies;  // a runner each
  Progress progress;
};

std::vector<Measured> measure_together(const std::vector<Part>& parts, const RoundPlan& plan) {
  Team team(static_cast<int>(parts.size()));
  std::vector<Measured> measured(parts.size());
  std::vector<std::thread> threads;
  for (size_t place = 0; place < parts.size(); ++place) {
    threads.emplace_back([&, place] {
      Measured& own = measured[place];
      own.calls.resize(parts[place].bodies.size());
      std::vector<std::shared_ptr<Runner>> runners;
      for (size_t index = 0; index < own.calls.size(); ++index) {
        runners.push_back(std::make_shared<FakeRunner>("a", nullptr, [&, index, place](int call) {
          ++own.calls[index];
          parts[place].bodies[index](call);
        }));
      }
      try {
        own.result = measure_rounds(runners, plan, parts[place].progress,
                                    [&](int64_t number) { return team.agree(number); });
      } catch (const std::exception& error) {
        own.error = error.what();
        team.leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return measured;
}

FakeRunner::Body take(int64_t time_ns) {
  return [time_ns](int) { spin(time_ns); };
}

std::vector<std::vector<size_t>> count_samples(const RoundsResult& result) {
  std::vector<std::vector<size_t>> counts;
  for (const RunnerRounds& rounds : result.runners) {
    counts.emplace_back();
    for (const auto& samples : rounds.samples_ns) counts.back().push_back(samples.size());
  }
  return counts;
}

RoundPlan make_plan() {
  RoundPlan plan;
  plan.round_duration_ns = 2 * kMs;
  plan.rule = {.min_rounds = 4, .max_rounds = 12, .time_limit_ns = 2'000 * kMs};
  plan.warmup.limit_ns = 100 * kMs;
  return plan;
}

TEST(all_make_the_same_requests_whatever_each_takes) {
  for (const Mode mode : {Mode::kLatency, Mode::kThroughput}) {
    RoundPlan plan = make_plan();
    plan.mode = mode;
    const auto measured = measure_together(
        {{{take(20'000), take(300'000)}, {}}, {{take(200'000), take(10'000)}, {}}}, plan);
    const RoundsResult &first = measured[0].result, &second = measured[1].result;
    CHECK(measured[0].error.empty() && measured[1].error.empty());
    if (measured[0].result.runners.empty() || measured[1].result.runners.empty()) return;
    CHECK(measured[0].calls == measured[1].calls);
    CHECK(first.runners[0].values_ns.size() >= 4);
    CHECK(count_samples(first) == count_samples(second));
    CHECK(first.stop_reason == second.stop_reason);
    for (size_t index = 0; index < 2; ++index) {
      CHECK(first.runners[index].positions == second.runners[index].positions);
      CHECK(first.runners[index].dropped == second.runners[index].dropped);
      CHECK(first.runners[index].burst == second.runners[index].burst);
    }
  }
}

TEST(a_first_call_that_compiles_in_one_is_corrected_in_all) {
  RoundPlan plan = make_plan();
  plan.warmup.iterations = 1;
  const FakeRunner::Body compiling = [](int call) { spin(call < 2 ? 60 * kMs : kMs / 20); };
  const auto measured = measure_together({{{take(kMs / 20)}, {}}, {{compiling}, {}}}, plan);
  CHECK(measured[0].calls == measured[1].calls);
  CHECK(count_samples(measured[0].result) == count_samples(measured[1].result));
}

TEST(all_are_precise_before_they_stop) {
  RoundPlan plan = make_plan();
  plan.samples_per_round = 2;
  plan.warmup.iterations = 1;
  plan.rule.target_ratio = 0.5;
  // Its rounds, of two calls after that of the warm-up, are short and long by turns.
  const FakeRunner::Body unsteady = [](int call) {
    spin((call - 1) / 2 % 2 == 0 ? 1000 : 2 * kMs);
  };
  const auto measured = measure_together({{{take(kMs / 5)}, {}}, {{unsteady}, {}}}, plan);
  CHECK(measured[0].error.empty() && measured[1].error.empty());
  if (measured[0].result.runners.empty() || measured[1].result.runners.empty()) return;
  CHECK(measured[0].calls == measured[1].calls);
  CHECK(measured[0].result.stop_reason == measured[1].result.stop_reason);
  CHECK(measured[0].result.runners[0].values_ns.size() > 4);
}

TEST(requests_begin_when_all_are_there) {
  RoundPlan plan = make_plan();
  plan.rule = {.max_rounds = 3, .fixed = true};
  plan.samples_per_round = 4;
  plan.warmup.iterations = 2;
  std::atomic<int> begun = 0, apart = 0;
  // Each leaves the other behind by one request at most.
  const FakeRunner::Body body = [&](int call) {
    if (++begun < 2 * call + 1) ++apart;
  };
  const auto measured = measure_together({{{body}, {}}, {{body}, {}}}, plan);
  CHECK(measured[0].calls[0] == 2 + 3 * 4);
  CHECK(begun == 2 * (2 + 3 * 4));
  CHECK(apart == 0);
}

TEST(an_interruption_of_one_is_one_of_all_after_the_same_rounds) {
  const Progress interrupt = [](const char* phase, int done, int) {
    if (std::string(phase) == "round" && done == 3) throw Interrupted("Ctrl-C");
  };
  const auto measured =
      measure_together({{{take(1000)}, {}}, {{take(1000)}, interrupt}}, make_plan());
  for (const Measured& own : measured) {
    CHECK(own.error.empty());
    CHECK(own.result.stop_reason == StopReason::kInterrupted);
    CHECK(own.result.runners[0].values_ns.size() == 3);
  }
}

TEST(a_failure_of_one_ends_all) {
  const FakeRunner::Body failing = [](int call) {
    if (call == 9) throw std::runtime_error("call 9 broke");
  };
  const auto measured =
      measure_together({{{take(1000), take(1000)}, {}}, {{take(1000), failing}, {}}}, make_plan());
  CHECK(measured[0].error == "another one has left");
  CHECK(measured[1].error == "call 9 broke");
}

TEST(patience_is_for_one_process) {
  RoundPlan plan = make_plan();
  plan.patience_ns = kMs;
  const auto measured = measure_together({{{take(1000)}, {}}}, plan);
  CHECK(measured[0].error.find("patience_s=0") != std::string::npos);
}

}  // namespace
}  // namespace ftax
