// Calls that a median does not see: numbers worked out by hand, and what is no such call.
#include <cstdint>
#include <optional>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "core/slow_calls.h"

namespace ftax {
namespace {

using Rounds = std::vector<std::vector<int64_t>>;
constexpr size_t kMany = 20;

// `count` samples of `usual_ns`, and one of `last_ns`.
std::vector<int64_t> make_round(size_t count, int64_t usual_ns, int64_t last_ns) {
  std::vector<int64_t> samples(count, usual_ns);
  samples.push_back(last_ns);
  return samples;
}

std::optional<SlowCalls> find(const Rounds& rounds, int64_t waited_ns = 0) {
  return find_slow_calls(rounds, std::vector<int64_t>(rounds.size(), waited_ns), {});
}

void check_equal(const std::optional<SlowCalls>& found, double mean_ns, double share_ratio,
                 double extra_ns) {
  CHECK(found.has_value());
  if (!found) return;
  CHECK_NEAR(found->mean_ns, mean_ns, 1e-9);
  CHECK_NEAR(found->share_ratio, share_ratio, 1e-12);
  CHECK_NEAR(found->extra_ns, extra_ns, 1e-9);
}

TEST(every_tenth_call_is_found_with_what_it_takes_more) {
  check_equal(find(Rounds(kMany, make_round(9, 100, 500))), 140.0, 0.1, 400.0);
}

TEST(calls_that_are_a_little_longer_are_not_slow_beside_one_that_is) {
  std::vector<int64_t> samples(10, 100);
  samples.insert(samples.end(), 9, 110);
  samples.push_back(1100);  // the median is 105
  check_equal(find(Rounds(kMany, samples)), 154.5, 1.0 / 20, 995.0);
}

TEST(a_slow_call_in_every_other_round_is_found) {
  Rounds rounds;
  for (size_t i = 0; i < kMany / 2; ++i) {
    rounds.push_back(make_round(9, 100, 100));
    rounds.push_back(make_round(9, 100, 2100));
  }
  check_equal(find(rounds), 200.0, 0.05, 2000.0);
}

TEST(what_adds_less_than_a_twentieth_is_not_told) {
  CHECK(!find(Rounds(kMany, make_round(9, 100, 149))));
  check_equal(find(Rounds(kMany, make_round(9, 100, 151))), 105.1, 0.1, 51.0);
  CHECK(!find(Rounds(kMany, make_round(9, 100, 100))));
  CHECK(!find(Rounds(kMany, make_round(9, 100, 10))));  // faster ones are no cost
}

TEST(what_others_took_in_a_few_rounds_is_not_told) {
  Rounds rounds(kMany, make_round(9, 100, 100));
  rounds[3] = rounds[12] = make_round(9, 100, 40'000);  // 4 times the latency, in the mean of all
  CHECK(!find(rounds));
}

TEST(what_threads_waited_for_a_cpu_is_the_machines) {
  const Rounds rounds(kMany, make_round(9, 100, 500));
  CHECK(!find(rounds, 400));
  CHECK(!find(rounds, 300));  // cold caches behind such waits would explain the rest
  check_equal(find(rounds, 100), 130.0, 0.1, 300.0);
}

TEST(a_mean_within_the_noise_of_the_medians_is_not_told) {
  Rounds rounds;
  for (size_t i = 0; i < kMany; ++i) {
    const int64_t usual_ns = i % 2 == 0 ? 60 : 140;  // the mean is 100, give or take about 20
    rounds.push_back(make_round(9, usual_ns, usual_ns + 100));
  }
  CHECK(!find(rounds));
  for (std::vector<int64_t>& samples : rounds) samples.back() += 900;
  check_equal(find(rounds), 200.0, 0.1, 1000.0);
}

TEST(few_rounds_tell_nothing_of_slow_calls) {
  CHECK(!find(Rounds(9, make_round(9, 100, 500))));
  CHECK(find(Rounds(10, make_round(9, 100, 500))).has_value());
  CHECK(!find({}));
}

TEST(what_is_no_round_is_refused) {
  CHECK_THROWS(find(Rounds(kMany)), InvalidArgumentError, "0 samples");
  CHECK_THROWS(find(Rounds(kMany, {1, 2}), -1), InvalidArgumentError, "waited is -1 ns");
  CHECK_THROWS(find_slow_calls(Rounds(2, {1}), std::vector<int64_t>{0}, {}), InvalidArgumentError,
               "2 rounds and 1 times");
}

}  // namespace
}  // namespace ftax
