// Makes the tables of docs/statistics.md: how often intervals hold the truth, for rounds that are
// not independent and normal. It also runs the methods that were not chosen, so that the choice can
// be argued with. Usage: simulate_coverage [runs, default 2000] [stopping, for those tables alone].
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "core/bootstrap.h"
#include "core/stopping.h"
#include "measure/host_probe.h"
#include "processes.h"

namespace ftax {
namespace {

using processes::Process;

const Process kProcesses[] = {
    {.name = "independent"},
    {.name = "AR(1), 0.3", .autocorrelation = 0.3},
    {.name = "AR(1), 0.5", .autocorrelation = 0.5},
    {.name = "AR(1), 0.7", .autocorrelation = 0.7},
    {.name = "drift 6 %", .drift_ratio = 0.06},
    {.name = "drift 6 %, noise 0.5 %", .noise_ratio = 0.005, .drift_ratio = 0.06},
    {.name = "t, 3 degrees of freedom", .heavy_tails = true},
    {.name = "spikes on 5 % of rounds", .spike_probability = 0.05},
    {.name = "two levels, 10 rounds each", .noise_ratio = 0.005, .switch_probability = 0.1},
};

double compute_mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Interval compute_t_interval(const std::vector<double>& values) {
  const double n = static_cast<double>(values.size());
  const double mean = compute_mean(values);
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double half_width = student_t_quantile(0.975, n - 1.0) * std::sqrt(squares / (n - 1.0) / n);
  return {mean - half_width, mean + half_width};
}

// Hesterberg's: percentiles of the bootstrap distribution of independent rounds, further out than
// asked by what t and n / (n - 1) demand.
Interval compute_expanded_percentile_interval(const std::vector<double>& values, uint64_t seed) {
  processes::Random random(seed);
  const double n = static_cast<double>(values.size());
  std::vector<double> means(1000);
  for (double& mean : means) {
    mean = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      mean += values[static_cast<std::size_t>(random.uniform() * n)] / n;
    }
  }
  std::sort(means.begin(), means.end());
  const double tail = normal_cdf(student_t_quantile(0.025, n - 1.0) * std::sqrt(n / (n - 1.0)));
  return {compute_quantile(means, tail), compute_quantile(means, 1.0 - tail)};
}

Interval compute_bootstrap_interval(const std::vector<double>& values, int block, uint64_t seed) {
  const RoundTable table{.columns = 1, .values = values};
  const BootstrapOptions options{.resamples = 1000, .seed = seed, .block = block};
  return compute_joint_intervals(table, std::vector<Contrast>{{1.0}}, options).front();
}

struct Tally {
  int covered = 0;
  double half_width_sum = 0.0;

  void add(const Interval& interval, double truth) {
    covered += interval.low <= truth && truth <= interval.high ? 1 : 0;
    half_width_sum += (interval.high - interval.low) / 2.0;
  }
  void print(int runs, double scale) const {
    std::printf(" %.1f (%.2f) |", 100.0 * covered / runs, 100.0 * half_width_sum / runs / scale);
  }
};

void simulate_methods(int rounds, int runs) {
  std::printf(
      "\n%d rounds\n\n| rounds are | t | expanded percentile | block 1 | block 5 | chosen |\n"
      "|---|---|---|---|---|---|\n",
      rounds);
  for (const Process& process : kProcesses) {
    processes::Random random(7);
    const double truth = compute_truth(process, rounds, rounds);
    std::vector<Tally> tallies(5);
    for (int run = 0; run < runs; ++run) {
      const std::vector<double> values = draw(process, rounds, random);
      const uint64_t seed = static_cast<uint64_t>(run);
      tallies[0].add(compute_t_interval(values), truth);
      tallies[1].add(compute_expanded_percentile_interval(values, seed), truth);
      tallies[2].add(compute_bootstrap_interval(values, 1, seed), truth);
      if (rounds >= 20) tallies[3].add(compute_bootstrap_interval(values, 5, seed), truth);
      tallies[4].add(compute_bootstrap_interval(values, 0, seed), truth);
    }
    std::printf("| %s |", process.name);
    for (std::size_t i = 0; i < tallies.size(); ++i) {
      if (i == 3 && rounds < 20) {
        std::printf(" |");
      } else {
        tallies[i].print(runs, processes::kMeanNs);
      }
    }
    std::printf("\n");
  }
}

// Two columns feel the same process; the second is 10 % faster and each has 0.5 % noise of its own.
void simulate_differences(int rounds, int runs) {
  std::printf(
      "\n%d rounds: difference of two columns that share the process\n\n"
      "| both feel | mean of a column | difference, chosen | difference, its column's block |\n"
      "|---|---|---|---|\n",
      rounds);
  for (const Process& process : kProcesses) {
    processes::Random random(11);
    std::vector<Tally> tallies(3);
    for (int run = 0; run < runs; ++run) {
      const std::vector<double> shared = draw(process, rounds, random);
      std::vector<double> slow;
      std::vector<double> difference;
      for (const double value : shared) {
        slow.push_back(value * (1.0 + 0.005 * random.normal()));
        difference.push_back(slow.back() - 0.9 * value * (1.0 + 0.005 * random.normal()));
      }
      const uint64_t seed = static_cast<uint64_t>(run);
      const double truth = compute_truth(process, rounds, rounds);
      tallies[0].add(compute_bootstrap_interval(slow, 0, seed), truth);
      tallies[1].add(compute_bootstrap_interval(difference, 0, seed), 0.1 * truth);
      tallies[2].add(compute_bootstrap_interval(difference, compute_block(slow), seed),
                     0.1 * truth);
    }
    std::printf("| %s |", process.name);
    for (const Tally& tally : tallies) tally.print(runs, processes::kMeanNs);
    std::printf("\n");
  }
}

// Rounds beside a neighbour, who comes and goes: none in `share` 0, half of them in 0.5, five at a
// time.
std::vector<bool> draw_disturbance(int rounds, double share, processes::Random& random) {
  std::vector<bool> disturbed;
  bool is_there = random.uniform() < share;
  for (int i = 0; i < rounds; ++i) {
    disturbed.push_back(is_there);
    if (share > 0.0 && random.uniform() < 0.2) is_there = !is_there;
  }
  return disturbed;
}

// What the rounds that count would be on average without noise.
double compute_truth_of(const Process& process, const std::vector<int>& counted, int rounds) {
  double sum = 0.0;
  for (const int round : counted) {
    sum += compute_truth(process, round + 1, rounds) * (round + 1) -
           compute_truth(process, round, rounds) * round;
  }
  return sum / static_cast<double>(counted.size());
}

struct Run {
  std::vector<double> values;  // of the rounds that count when it stopped
  std::vector<int> counted;
  bool precise = false;
};

// As csrc/measure/rounds.cpp does. A round beside a neighbour takes half as long again.
Run measure_until_precise(std::vector<double> values, const std::vector<bool>& disturbed,
                          const StoppingRule& rule, uint64_t seed) {
  Run run;
  Looks looks(rule);
  std::vector<int> left_out;
  for (int round = 0; round < rule.max_rounds && !run.precise; ++round) {
    const auto place = static_cast<std::size_t>(round);
    if (disturbed[place]) {
      left_out.push_back(round);
      values[place] *= 1.5;
    }
    run.counted = choose_rounds(round + 1, left_out);
    if (!looks.is_due(static_cast<int>(run.counted.size()), round + 1 == rule.max_rounds)) continue;
    run.values.clear();
    for (const int i : run.counted) run.values.push_back(values[static_cast<std::size_t>(i)]);
    run.precise = is_precise({.columns = 1, .values = run.values}, rule, seed);
  }
  return run;
}

// With the numbers that ftax measures by, of 30 seconds.
void simulate_stopping(int runs, double share) {
  const StoppingRule rule{.max_rounds = 300, .target_ratio = 0.01};
  std::printf(
      "\nstopping when precise at a declared number of rounds that count, 20 to %d, target %.0f "
      "%%; "
      "%.0f %% of the rounds do not count\n\n"
      "| rounds are | covers the mean over the rounds that counted | over all %d rounds | "
      "precise | that counted, mean |\n|---|---|---|---|---|\n",
      rule.max_rounds, 100.0 * rule.target_ratio, 100.0 * share, rule.max_rounds);
  for (const Process& process : kProcesses) {
    processes::Random random(13);
    Tally counted;
    Tally whole;
    int precise_runs = 0;
    double rounds_sum = 0.0;
    for (int i = 0; i < runs; ++i) {
      const std::vector<double> values = draw(process, rule.max_rounds, random);
      const std::vector<bool> disturbed = draw_disturbance(rule.max_rounds, share, random);
      const uint64_t seed = static_cast<uint64_t>(i);
      const Run run = measure_until_precise(values, disturbed, rule, seed);
      const Interval interval = compute_bootstrap_interval(run.values, 0, seed);
      counted.add(interval, compute_truth_of(process, run.counted, rule.max_rounds));
      whole.add(interval, compute_truth(process, rule.max_rounds, rule.max_rounds));
      precise_runs += run.precise ? 1 : 0;
      rounds_sum += static_cast<double>(run.counted.size());
    }
    std::printf("| %s |", process.name);
    counted.print(runs, processes::kMeanNs);
    std::printf(" %.1f | %.1f %% | %.0f |\n", 100.0 * whole.covered / runs,
                100.0 * precise_runs / runs, rounds_sum / runs);
  }
}

}  // namespace
}  // namespace ftax

int main(int argc, char** argv) {
  const int runs = argc > 1 ? static_cast<int>(std::strtol(argv[1], nullptr, 10)) : 2000;
  if (runs < 1) {
    std::fprintf(stderr, "the number of runs is '%s'; pass a number of at least 1\n", argv[1]);
    return 2;
  }
  std::printf("coverage in %% of %d runs (mean half-width in %% of the mean); nominal 95\n", runs);
  if (argc <= 2) {
    for (const int rounds : {5, 10, 20, 40, 60, 100}) ftax::simulate_methods(rounds, runs);
    for (const int rounds : {20, 60}) ftax::simulate_differences(rounds, runs);
  }
  for (const double share : {0.0, 0.5}) ftax::simulate_stopping(runs, share);
}
