// One function per part of the extension, each in a file of its own named bind_<part>.cpp.
#pragma once

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace ftax {

void bind_errors(py::module_& m);
void bind_statistics(py::module_& m);
void bind_measure(py::module_& m);
void bind_runners(py::module_& m);
void bind_floors(py::module_& m);
void bind_onnxruntime(py::module_& m);
void bind_plugin(py::module_& m);
void bind_tape(py::module_& m);
void bind_recorder(py::module_& m);
void bind_torch_runners(py::module_& m);
void bind_capture(py::module_& m);
#ifdef FTAX_WITH_CUDA
void bind_cuda(py::module_& m);
void bind_gate(py::module_& m);
void bind_transfers(py::module_& m);
void bind_graph(py::module_& m);
#endif
#ifdef FTAX_WITH_CUPTI
void bind_cupti(py::module_& m);
#endif

}  // namespace ftax
