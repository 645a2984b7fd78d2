// A copy crosses as (target, source, bytes); whoever makes the runner keeps the tensors alive.
#include <pybind11/stl.h>

#include <tuple>

#include "bindings/bindings.h"
#include "bindings/owner.h"
#include "cuda/transfer_runner.h"

namespace ftax {
namespace {

using Copies = std::vector<std::tuple<uintptr_t, uintptr_t, size_t>>;

std::vector<cuda::TransferRunner::Copy> convert(const Copies& copies) {
  std::vector<cuda::TransferRunner::Copy> converted;
  converted.reserve(copies.size());
  for (const auto& [target, source, bytes] : copies) {
    converted.push_back(
        {reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), bytes});
  }
  return converted;
}

}  // namespace

void bind_transfers(py::module_& m) {
  py::class_<cuda::TransferRunner, Runner, std::shared_ptr<cuda::TransferRunner>>(m,
                                                                                  "TransferRunner")
      .def(py::init([](std::shared_ptr<Runner> inner, const Copies& inputs, const Copies& outputs,
                       py::object memory_owner) {
             return std::make_shared<cuda::TransferRunner>(std::move(inner), convert(inputs),
                                                           convert(outputs),
                                                           share_owner(std::move(memory_owner)));
           }),
           py::arg("inner"), py::arg("inputs"), py::arg("outputs"), py::arg("memory_owner"));
}

}  // namespace ftax
