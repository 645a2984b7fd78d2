// What a CUDA build adds to the extension.
#include "bindings/bindings.h"
#include "cuda/null_kernel_runner.h"

namespace ftax {

void bind_cuda(py::module_& m) {
  py::class_<cuda::NullKernelRunner, Runner, std::shared_ptr<cuda::NullKernelRunner>>(
      m, "NullKernelRunner")
      .def(py::init<>());
}

}  // namespace ftax
