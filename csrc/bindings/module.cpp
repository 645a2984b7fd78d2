// ftax._core: the measuring core as Python sees it. This file only declares; python/ftax/_core.pyi
// is its typed description.
#include "bindings/bindings.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ core of ftax: timed loops, statistics, tape and runners.";
  ftax::bind_errors(m);
  ftax::bind_statistics(m);
  ftax::bind_measure(m);  // declares Runner, the base of every runner below
  ftax::bind_runners(m);
  ftax::bind_floors(m);
  ftax::bind_onnxruntime(m);
  ftax::bind_plugin(m);
  ftax::bind_recorder(m);
  ftax::bind_tape(m);
  ftax::bind_torch_runners(m);
  ftax::bind_capture(m);
#ifdef FTAX_WITH_CUDA
  ftax::bind_cuda(m);
  ftax::bind_gate(m);
  ftax::bind_transfers(m);
  ftax::bind_graph(m);
#endif
#ifdef FTAX_WITH_CUPTI
  ftax::bind_cupti(m);
#endif
}
