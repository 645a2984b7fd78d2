// The runners that execute through libtorch.
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "core/error.h"
#include "runners/torch/aoti_runner.h"
#include "runners/torch/chain_runner.h"
#include "runners/torch/operator_delay_runner.h"
#include "runners/torch/state_runner.h"
#include "runners/torch/tape_runner.h"
#include "runners/torch/torchscript_runner.h"

namespace ftax {
namespace {

template <typename T>
using Class = py::class_<T, Runner, std::shared_ptr<T>>;

std::shared_ptr<TorchScriptRunner> make_torchscript(const std::string& path, std::string name,
                                                    const std::string& device, GradMode grad_mode) {
  const py::gil_scoped_release release;
  return std::make_shared<TorchScriptRunner>(path, std::move(name), c10::Device(device), grad_mode);
}

std::shared_ptr<AotiRunner> make_aoti(const std::string& path, std::string name,
                                      const std::string& device, GradMode grad_mode) {
  const py::gil_scoped_release release;
  return std::make_shared<AotiRunner>(path, std::move(name), c10::Device(device), grad_mode);
}

// The module declares the types, so a Python list can become a List[Tensor] or a List[int].
void bind_inputs(TorchScriptRunner& runner, const py::list& inputs) {
  const auto types = runner.input_types();
  std::vector<c10::IValue> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const c10::TypePtr type = i < types.size() ? types[i] : c10::TensorType::get();
    try {
      values.push_back(torch::jit::toIValue(inputs[i], type));
    } catch (const std::exception&) {
      throw InvalidArgumentError("input " + std::to_string(i) + " is a " +
                                 Py_TYPE(py::object(inputs[i]).ptr())->tp_name + ", but " +
                                 runner.name() + " declares it as " + type->str());
    }
  }
  runner.bind_inputs(std::move(values));
}

}  // namespace

void bind_torch_runners(py::module_& m) {
  Class<TapeRunner>(m, "TapeRunner")
      .def(py::init([](std::shared_ptr<Tape> tape, std::string name, const std::string& device,
                       GradMode grad_mode) {
             return std::make_shared<TapeRunner>(std::move(tape), std::move(name),
                                                 c10::Device(device), grad_mode);
           }),
           py::arg("tape"), py::arg("name"), py::arg("device"), py::arg("grad_mode"));
  Class<TorchScriptRunner>(m, "TorchScriptRunner")
      .def(py::init(&make_torchscript), py::arg("path"), py::arg("name"), py::arg("device"),
           py::arg("grad_mode"))
      .def("bind_inputs", &bind_inputs, py::arg("inputs"))
      .def("run", [](TorchScriptRunner& runner) {
        c10::IValue output;
        {
          const py::gil_scoped_release release;
          output = runner.run();
        }
        return torch::jit::toPyObject(std::move(output));
      });
  Class<AotiRunner>(m, "AotiRunner")
      .def(py::init(&make_aoti), py::arg("path"), py::arg("name"), py::arg("device"),
           py::arg("grad_mode"))
      .def("bind_inputs", &AotiRunner::bind_inputs, py::arg("inputs"))
      .def("run", &AotiRunner::run, py::call_guard<py::gil_scoped_release>());
  Class<ChainRunner>(m, "ChainRunner")
      .def(py::init<at::Tensor, at::Tensor, at::Tensor, int>(), py::arg("x"), py::arg("weight"),
           py::arg("bias"), py::arg("repeats"))
      .def("run", [](const ChainRunner& runner) {
        const GradModeScope scope(GradMode::kInference);
        return runner.run();
      });
  py::class_<SavedState, std::shared_ptr<SavedState>>(m, "SavedState")
      .def(py::init<std::vector<at::Tensor>>(), py::arg("tensors"))
      .def("put_back", &SavedState::put_back);
  Class<StateRunner>(m, "StateRunner")
      .def(py::init<std::shared_ptr<Runner>, std::shared_ptr<SavedState>,
                    std::shared_ptr<SavedState>, py::object>(),
           py::arg("inner"), py::arg("each_sample"), py::arg("each_round"), py::arg("reset"));
  Class<OperatorDelayRunner>(m, "OperatorDelayRunner")
      .def(py::init<std::shared_ptr<Runner>, int64_t>(), py::arg("inner"), py::arg("delay_ns"));
}

}  // namespace ftax
