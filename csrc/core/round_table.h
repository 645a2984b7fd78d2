// One number per round and column (a column is a runner), in nanoseconds. A round is kept whole: it
// is added in one piece and resampled in one piece, which is what makes differences between columns
// immune to drifts that all columns share.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace ftax {

struct RoundTable {
  int columns = 0;
  std::vector<double> values;  // row-major, rounds x columns, ns

  [[nodiscard]] int rounds() const {
    return columns > 0 ? static_cast<int>(values.size() / static_cast<std::size_t>(columns)) : 0;
  }

  // Unchecked: this sits in the innermost loops.
  [[nodiscard]] double at(int round, int column) const {
    return values[static_cast<std::size_t>(round) * static_cast<std::size_t>(columns) +
                  static_cast<std::size_t>(column)];
  }

  // Throws InvalidArgumentError, and leaves the table as it was, unless `round` holds one finite
  // value for each column.
  void add_round(std::span<const double> round) {
    if (columns <= 0 || round.size() != static_cast<std::size_t>(columns)) {
      throw InvalidArgumentError("a round has " + std::to_string(round.size()) +
                                 " values but the table has " + std::to_string(columns) +
                                 " columns; pass one value for each column");
    }
    for (std::size_t i = 0; i < round.size(); ++i) {
      if (!std::isfinite(round[i])) {
        throw InvalidArgumentError("the value of column " + std::to_string(i) + " is " +
                                   std::to_string(round[i]) + "; a round holds finite numbers");
      }
    }
    values.insert(values.end(), round.begin(), round.end());
  }

  [[nodiscard]] std::vector<double> column(int index) const {
    check_column(index);
    std::vector<double> result;
    result.reserve(static_cast<std::size_t>(rounds()));
    for (int r = 0; r < rounds(); ++r) result.push_back(at(r, index));
    return result;
  }

  [[nodiscard]] double mean(int index) const {
    check_column(index);
    if (rounds() == 0) throw InvalidArgumentError("the table has 0 rounds; add a round first");
    double sum = 0.0;
    for (int r = 0; r < rounds(); ++r) sum += at(r, index);
    return sum / rounds();
  }

 private:
  void check_column(int index) const {
    if (index < 0 || index >= columns) {
      throw InvalidArgumentError("there is no column " + std::to_string(index) +
                                 "; the table has columns 0 to " + std::to_string(columns - 1));
    }
  }
};

}  // namespace ftax
