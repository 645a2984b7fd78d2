// Makes the tables of docs/statistics.md: how often intervals hold the truth, for rounds that are
// not independent and normal. It also runs the methods that were not chosen, so that the choice can
// be argued with. Usage: simulate_coverage [runs, default 2000].
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "core/bootstrap.h"
#include "core/stopping.h"
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

RoundTable measure_until_precise(const std::vector<double>& values, const std::vector<int>& looks,
                                 const StoppingRule& rule, uint64_t seed, bool& precise) {
  RoundTable table{.columns = 1, .values = {}};
  for (const int look : looks) {
    table.values.assign(values.begin(), values.begin() + look);
    precise = is_precise(table, rule, seed);
    if (precise) break;
  }
  return table;
}

void simulate_stopping(int runs) {
  const StoppingRule rule;
  std::printf(
      "\nstopping at declared looks, 20 to %d rounds, target %.0f %%, "
      "all but the last with twice the noise\n\n"
      "| rounds are | covers the mean over the rounds measured | over all %d rounds | "
      "precise | rounds, mean |\n|---|---|---|---|---|\n",
      rule.max_rounds, 100.0 * rule.target_ratio, rule.max_rounds);
  for (Process process : kProcesses) {
    if (process.switch_probability == 0.0) process.noise_ratio *= 2.0;  // or 20 rounds suffice
    processes::Random random(13);
    Tally measured;
    Tally whole;
    int precise_runs = 0;
    double rounds_sum = 0.0;
    for (int run = 0; run < runs; ++run) {
      const std::vector<double> values = draw(process, rule.max_rounds, random);
      const uint64_t seed = static_cast<uint64_t>(run);
      bool precise = false;
      const RoundTable table =
          measure_until_precise(values, rule.compute_looks(), rule, seed, precise);
      const Interval interval = compute_bootstrap_interval(table.values, 0, seed);
      measured.add(interval, compute_truth(process, table.rounds(), rule.max_rounds));
      whole.add(interval, compute_truth(process, rule.max_rounds, rule.max_rounds));
      precise_runs += precise ? 1 : 0;
      rounds_sum += table.rounds();
    }
    std::printf("| %s |", process.name);
    measured.print(runs, processes::kMeanNs);
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
  for (const int rounds : {5, 10, 20, 40, 60, 100}) ftax::simulate_methods(rounds, runs);
  for (const int rounds : {20, 60}) ftax::simulate_differences(rounds, runs);
  ftax::simulate_stopping(runs);
}
