// What one compiled graph was called with: its inputs, which may lie elsewhere in another call, and
// weights and plain values, which have to be what they were.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <vector>

namespace ftax {

class GraphArguments {
 public:
  // `inputs`: their places among `args`.
  GraphArguments(py::tuple args, std::vector<size_t> inputs);

  // The inputs among other arguments, if all else is the same.
  [[nodiscard]] std::optional<std::vector<at::Tensor>> match(const py::tuple& args) const;

  // For Python's collector of garbage.
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Seen {
    size_t place;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    at::TensorOptions options;
    const void* memory;  // null: any
  };

  static bool is_like(const Seen& seen, const at::Tensor& tensor);

  py::tuple args_;
  std::vector<size_t> inputs_;
  std::vector<Seen> tensors_;
};

// Those of the objects that are functions with one of these codes, which are known by their
// address: equal codes may be of functions of which one ran.
[[nodiscard]] py::list find_functions(const py::list& objects, const py::tuple& codes);

}  // namespace ftax
