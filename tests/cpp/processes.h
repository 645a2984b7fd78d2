// Series of rounds with a known truth, for the simulations: what rounds of a real machine look like
// when they are not independent and normal. Normal numbers are made here (Box and Muller) because
// std::normal_distribution gives other numbers in other standard libraries, and a simulated test
// must not pass on one machine and fail on the next.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>
#include <vector>

namespace processes {

inline constexpr double kMeanNs = 1000.0;

class Random {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}

  double uniform() { return (static_cast<double>(generator_() >> 11) + 0.5) * 0x1.0p-53; }

  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 generator_;
};

struct Process {
  const char* name;
  double noise_ratio = 0.02;        // standard deviation of a round over the mean
  double autocorrelation = 0.0;     // rho of AR(1) noise
  double drift_ratio = 0.0;         // linear, from first to last round, over the mean
  bool heavy_tails = false;         // t with 3 degrees of freedom, times the noise
  double spike_probability = 0.0;   // of a round to take 10 % * lognormal(0, 1) longer
  double switch_probability = 0.0;  // of a round to enter the other of two levels, 6 % apart
};

// `rounds` values in ns whose expected mean is compute_truth(process, rounds, rounds).
inline std::vector<double> draw(const Process& process, int rounds, Random& random) {
  std::vector<double> values;
  const double memory = process.autocorrelation;
  double noise = random.normal();
  bool upper = random.uniform() < 0.5;
  for (int i = 0; i < rounds; ++i) {
    double value = 1.0 + process.drift_ratio * ((i + 0.5) / rounds - 0.5);
    if (process.heavy_tails) {
      double squares = 0.0;
      for (int k = 0; k < 3; ++k) squares += std::pow(random.normal(), 2);
      noise = random.normal() / std::sqrt(squares / 3.0);
    }
    value += process.noise_ratio * noise;
    noise = memory * noise + std::sqrt(1.0 - memory * memory) * random.normal();
    if (random.uniform() < process.spike_probability) value += 0.1 * std::exp(random.normal());
    if (random.uniform() < process.switch_probability) upper = !upper;
    if (process.switch_probability > 0.0) value += upper ? 0.03 : -0.03;
    values.push_back(kMeanNs * value);
  }
  return values;
}

// The mean that the first `measured` of `rounds` rounds would have without noise.
inline double compute_truth(const Process& process, int measured, int rounds) {
  const double middle = 0.5 * measured / rounds;  // of the rounds measured, as a share of all
  return kMeanNs * (1.0 + process.drift_ratio * (middle - 0.5) +
                    process.spike_probability * 0.1 * std::exp(0.5));
}

}  // namespace processes
