// Statistics as Python sees them. Arguments are numpy arrays or anything numpy makes one of;
// results are small read-only objects. Samples in ns must be integers already: numpy would gladly
// truncate a list of seconds to zeros.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "core/bootstrap.h"
#include "core/compare.h"
#include "core/error.h"
#include "core/slow_calls.h"
#include "core/statistics.h"

namespace ftax {
namespace {

using DoubleArray = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Int64Array = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

void check_dimensions(const py::array& array, py::ssize_t dimensions) {
  if (array.ndim() != dimensions) {
    throw InvalidArgumentError("the array has " + std::to_string(array.ndim()) +
                               " dimensions; pass one with " + std::to_string(dimensions));
  }
}

std::span<const double> view(const DoubleArray& array) {
  check_dimensions(array, 1);
  return {array.data(), static_cast<size_t>(array.size())};
}

Int64Array convert_samples(const py::object& samples_ns) {
  const py::array array = py::array::ensure(samples_ns);
  if (!array) throw InvalidArgumentError("the samples are no array; pass integers, in ns");
  check_dimensions(array, 1);
  const char kind = array.dtype().kind();
  if (kind != 'i' && array.size() > 0) {
    throw InvalidArgumentError("the samples have numpy's dtype kind '" + std::string(1, kind) +
                               "'; pass signed integers, in ns");
  }
  return Int64Array::ensure(array);
}

RoundTable convert_table(const DoubleArray& values) {
  check_dimensions(values, 2);
  RoundTable table{.columns = static_cast<int>(values.shape(1)), .values = {}};
  for (py::ssize_t round = 0; round < values.shape(0); ++round) {
    table.add_round(
        {values.data() + round * values.shape(1), static_cast<size_t>(values.shape(1))});
  }
  return table;
}

void bind_results(py::module_& m) {
  py::class_<Interval>(m, "Interval")
      .def_readonly("low", &Interval::low)
      .def_readonly("high", &Interval::high)
      .def("__repr__", [](const Interval& interval) {
        return py::str("Interval(low={}, high={})").format(interval.low, interval.high);
      });
  py::class_<MedianInterval>(m, "MedianInterval")
      .def_readonly("median", &MedianInterval::median)
      .def_readonly("interval", &MedianInterval::interval)
      .def_readonly("confidence", &MedianInterval::confidence)
      .def_readonly("attained", &MedianInterval::attained);
  py::class_<Summary>(m, "Summary")
      .def_readonly("count", &Summary::count)
      .def_readonly("min", &Summary::min)
      .def_readonly("max", &Summary::max)
      .def_readonly("mean", &Summary::mean)
      .def_readonly("p50", &Summary::p50)
      .def_readonly("p90", &Summary::p90)
      .def_readonly("p99", &Summary::p99)
      .def_readonly("mad", &Summary::mad)
      .def_readonly("median", &Summary::median);
  py::class_<SlowCalls>(m, "SlowCalls")
      .def_readonly("mean_ns", &SlowCalls::mean_ns)
      .def_readonly("share_ratio", &SlowCalls::share_ratio)
      .def_readonly("extra_ns", &SlowCalls::extra_ns);
  py::class_<Comparison>(m, "Comparison")
      .def_readonly("ratio", &Comparison::ratio)
      .def_readonly("ratio_interval", &Comparison::ratio_interval)
      .def_readonly("margin", &Comparison::margin)
      .def_property_readonly("verdict",
                             [](const Comparison& result) { return to_string(result.verdict); })
      .def_readonly("units_a", &Comparison::units_a)
      .def_readonly("units_b", &Comparison::units_b)
      .def_readonly("method", &Comparison::method);
}

void bind_descriptions(py::module_& m) {
  m.def(
      "compute_median", [](const DoubleArray& samples) { return compute_median(view(samples)); },
      py::arg("samples"));
  m.def(
      "compute_median_interval",
      [](const DoubleArray& samples, double confidence) {
        return compute_median_interval(view(samples), confidence);
      },
      py::arg("samples"), py::arg("confidence") = 0.95);
  m.def("compute_share_interval", &compute_share_interval, py::arg("hits"), py::arg("count"),
        py::kw_only(), py::arg("confidence") = 0.95);
  m.def(
      "summarize",
      [](const py::object& samples_ns) {
        const Int64Array samples = convert_samples(samples_ns);
        return summarize({samples.data(), static_cast<size_t>(samples.size())});
      },
      py::arg("samples_ns"));
}

void bind_inference(py::module_& m) {
  const BootstrapOptions defaults;
  m.def(
      "compute_joint_intervals",
      [](const DoubleArray& values, const std::vector<Contrast>& contrasts, double confidence,
         int resamples, uint64_t seed, int block) {
        const RoundTable table = convert_table(values);
        const py::gil_scoped_release release;
        return compute_joint_intervals(table, contrasts, {confidence, resamples, seed, block});
      },
      py::arg("values"), py::arg("contrasts"), py::kw_only(),
      py::arg("confidence") = defaults.confidence, py::arg("resamples") = defaults.resamples,
      py::arg("seed") = defaults.seed, py::arg("block") = defaults.block,
      "Intervals of the mean over rounds of contrasts; values has shape (rounds, columns).");
  m.def(
      "find_slow_calls",
      [](const std::vector<std::vector<int64_t>>& samples_ns, const std::vector<int64_t>& waited_ns,
         double confidence, int resamples, uint64_t seed) {
        const py::gil_scoped_release release;
        return find_slow_calls(samples_ns, waited_ns, {confidence, resamples, seed});
      },
      py::arg("samples_ns"), py::arg("waited_ns"), py::kw_only(),
      py::arg("confidence") = defaults.confidence, py::arg("resamples") = defaults.resamples,
      py::arg("seed") = defaults.seed, "samples_ns holds those of each round.");
  for (const auto& [name, compare] : {std::pair{"compare_paired", &compare_paired},
                                      std::pair{"compare_unpaired", &compare_unpaired}}) {
    m.def(
        name,
        [compare](const DoubleArray& a_ns, const DoubleArray& b_ns, double margin,
                  double confidence, double least) {
          return compare(view(a_ns), view(b_ns), margin, confidence, least);
        },
        py::arg("a_ns"), py::arg("b_ns"), py::kw_only(), py::arg("margin"), py::arg("confidence"),
        py::arg("least"), "b relative to a: a ratio above 1 means that b is slower.");
  }
}

}  // namespace

void bind_statistics(py::module_& m) {
  bind_results(m);
  bind_descriptions(m);
  bind_inference(m);
}

}  // namespace ftax
