// The tape as Python sees it: run it, look into it call by call, and time its operators.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "bindings/bindings.h"
#include "bindings/torch/convert.h"
#include "runners/grad_mode.h"
#include "tape/memory_meter.h"
#include "tape/tape.h"
#include "tape/written_arguments.h"

namespace ftax {
namespace {

// ("slot", i) | ("const", value) | ("list", [...]); what flat Python is generated from.
py::tuple describe_argument(const Argument& argument, const c10::TypePtr& type) {
  switch (argument.kind) {
    case Argument::Kind::kConstant:
      return py::make_tuple("const", to_python(argument.constant, type));
    case Argument::Kind::kSlot:
      return py::make_tuple("slot", argument.slot);
    default:
      break;
  }
  py::list items;
  for (const Argument& item : argument.items) items.append(describe_argument(item, type));
  return py::make_tuple("list", items);
}

// Of a collective; "" for other calls, and where a string names it.
std::string name_group(const Call& call) {
  for (const Argument& argument : call.arguments) {
    if (!call.communicates || !argument.constant.isObject()) continue;
    const auto object = argument.constant.toObject();
    if (object->name() == "__torch__.torch.classes.c10d.ProcessGroup") {
      return argument.constant.toCustomClass<c10d::ProcessGroup>()->getGroupName();
    }
  }
  return "";
}

py::dict describe_call(const Call& call) {
  py::list arguments, outputs;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    arguments.append(
        describe_argument(call.arguments[i], call.op.value().schema().arguments()[i].real_type()));
  }
  for (const Output& output : call.outputs) {
    if (output.is_list) {
      outputs.append(output.items);
    } else {
      outputs.append(output.slot);
    }
  }
  py::dict result;
  result["operator"] = call.operator_name();
  result["arguments"] = arguments;
  result["outputs"] = outputs;
  result["releases"] = call.releases;
  result["written"] = call.written;
  result["shared"] = call.shared;
  result["overlaps"] = call.overlaps;
  result["group"] = name_group(call);
  result["module"] = call.module_path;
  result["hidden"] = call.hidden;
  result["fill"] = call.fill.defined() ? py::cast(call.fill) : py::object(py::none());
  return result;
}

py::list make_arguments(const Tape& tape, size_t index) {
  const Call& call = tape.program().calls.at(index);
  const auto values = tape.make_arguments(index);
  py::list result;
  for (size_t i = 0; i < values.size(); ++i) {
    result.append(to_python(values[i], call.op.value().schema().arguments()[i].real_type()));
  }
  return result;
}

std::vector<at::Tensor> run(Tape& tape) {
  const py::gil_scoped_release release;
  tape.run();
  auto outputs = tape.outputs();
  tape.release_outputs();
  return outputs;
}

// Outside inference mode what it made cannot be written, nor saved for a backward pass.
at::Tensor leave_inference_mode(const at::Tensor& tensor) {
  if (!tensor.is_inference()) {  // a view of what outlives the call may have been made in it
    if (!tensor.is_view()) return tensor;
    const at::Tensor base(tensor._base());
    return base.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  if (tensor.layout() != at::kStrided || tensor.is_nested()) return tensor.clone();
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()),
                                                               tensor.key_set(), tensor.dtype());
  c10::TensorImpl* const impl = result.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return result;
}

// As a function is called: nothing of this call is held after it. Operators run under inference
// mode, in which they do least; the outputs at `places` are of the caller's mode.
std::vector<at::Tensor> call(Tape& tape, const std::vector<at::Tensor>& inputs,
                             const std::vector<size_t>& places) {
  tape.bind_inputs(inputs);
  // Errors and warnings of operators become those of Python that eager's are.
  HANDLE_TH_ERRORS
  const py::gil_scoped_release release;
  const GradModeScope scope(GradMode::kInference);
  // Where autocast is on, what it made of the calls was recorded.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  tape.run_as_eager();
  END_HANDLE_TH_ERRORS_PYBIND
  const py::gil_scoped_release release;
  std::vector<at::Tensor> outputs;
  {
    const auto all = tape.outputs();
    for (const size_t place : places) outputs.push_back(all.at(place));
  }
  tape.release_outputs();
  tape.release_inputs();
  if (c10::InferenceMode::is_enabled()) return outputs;
  const at::NoGradGuard no_grad;
  for (at::Tensor& output : outputs) output = leave_inference_mode(output);
  return outputs;
}

template <class Function>
void call_held(HeldCall& held, const Function& function) {
  HANDLE_TH_ERRORS
  const py::gil_scoped_release release;
  function(held);
  END_HANDLE_TH_ERRORS_PYBIND
}

// A tape of its own with the same tensors, so that both can be measured side by side.
std::shared_ptr<Tape> derive(const Tape& tape, Program program) {
  auto result = std::make_shared<Tape>(std::move(program));
  std::vector<at::Tensor> inputs;
  for (const int slot : tape.program().input_slots) inputs.push_back(tape.slot(slot).toTensor());
  result->bind_inputs(inputs);
  return result;
}

std::shared_ptr<Tape> without_host_reads(const Tape& tape, const std::vector<int>& kept) {
  return derive(tape, drop_host_reads(tape.program(), kept));
}

std::shared_ptr<Tape> bake_places(const Tape& tape,
                                  const std::vector<std::tuple<int, int, at::Tensor>>& places) {
  std::vector<Baked> baked;
  baked.reserve(places.size());
  for (const auto& [call, slot, tensor] : places) baked.push_back({call, slot, tensor});
  return derive(tape, bake(tape.program(), baked));
}

std::vector<StepCost> profile(Tape& tape, int repetitions, const py::object& prepare) {
  const py::gil_scoped_release release;
  const GradModeScope scope(GradMode::kInference);
  return tape.profile(repetitions, [&] {
    const py::gil_scoped_acquire gil;
    if (!prepare.is_none()) prepare();
  });
}

std::vector<std::string> list_operators(const Tape& tape, bool with_hidden) {
  std::vector<std::string> names;
  for (const Call& call : tape.program().calls) {
    if (call.op.has_value() && (with_hidden || !call.hidden)) names.push_back(call.operator_name());
  }
  return names;
}

}  // namespace

void bind_tape(py::module_& m) {
  py::class_<StepCost>(m, "StepCost")
      .def_readonly("build_ns", &StepCost::build_ns)
      .def_readonly("call_ns", &StepCost::call_ns)
      .def_readonly("release_ns", &StepCost::release_ns);
  py::class_<HeldCall, std::shared_ptr<HeldCall>>(m, "HeldCall")
      .def("run", [](HeldCall& held) { call_held(held, [](HeldCall& call) { call.run(); }); })
      .def("wait", [](HeldCall& held) { call_held(held, [](HeldCall& call) { call.wait(); }); });
  py::class_<Tape, std::shared_ptr<Tape>>(m, "Tape")
      .def("bind_inputs", &Tape::bind_inputs, py::arg("inputs"))
      .def("run", &run, "One inference under the caller's grad mode; its outputs.")
      .def("call", &call, py::arg("inputs"), py::arg("places"),
           "Binds the inputs, runs, and gives the outputs at these places; holds none of them.")
      .def(
          "run_call", [](Tape& t, size_t index) { t.run_calls(index, index + 1); },
          py::arg("index"))
      .def("run_calls", &Tape::run_calls, py::arg("first"), py::arg("last"),
           "Those from `first` to before `last`.")
      .def("waits_before", &Tape::waits_before, py::arg("index"),
           "Whether this call, the next one, waits for a collective that was called before.")
      .def("hold_call", &Tape::hold_call, py::arg("index"),
           "This call with the arguments that it would get now.")
      .def("release_outputs", &Tape::release_outputs)
      .def("outputs", &Tape::outputs)
      .def("arguments", &make_arguments, py::arg("index"), "Live arguments of the next call.")
      .def("slot", [](const Tape& t, int i) { return to_python(t.slot(i), c10::AnyType::get()); })
      .def("profile", &profile, py::arg("repetitions"), py::arg("prepare") = py::none(),
           "Host time of each call; `prepare()` is called before each repetition.")
      .def("without_host_reads", &without_host_reads, py::arg("kept") = std::vector<int>{},
           "A tape that waits for no value; those that calls in `kept` read are further outputs.")
      .def(
          "copy", [](const Tape& t) { return std::make_shared<Tape>(t.program()); },
          "The same calls, for another thread.")
      .def("bake", &bake_places, py::arg("places"),
           "The tape with (call, slot, tensor) as constants; without calls that make such slots.")
      .def(
          "part",
          [](const Tape& t, size_t first, size_t last,
             const std::vector<std::pair<int, at::Tensor>>& inputs,
             const std::vector<int>& outputs) {
            return std::make_shared<Tape>(take_part(t.program(), first, last, inputs, outputs));
          },
          py::arg("first"), py::arg("last"), py::arg("inputs"), py::arg("outputs"),
          "The calls of a range alone, given slots as they hold such tensors.")
      .def("__len__", [](const Tape& t) { return t.program().calls.size(); })
      .def_property_readonly("operators", [](const Tape& t) { return list_operators(t, true); })
      .def_property_readonly("visible_operators",
                             [](const Tape& t) { return list_operators(t, false); })
      .def_property_readonly("calls",
                             [](const Tape& t) {
                               py::list calls;
                               for (const Call& s : t.program().calls)
                                 calls.append(describe_call(s));
                               return calls;
                             })
      .def_property_readonly("typed_calls", &Tape::typed_calls)
      .def_property_readonly("slot_count", [](const Tape& t) { return t.program().slot_count; })
      .def_property_readonly("input_slots", [](const Tape& t) { return t.program().input_slots; })
      .def_property_readonly("output_slots", [](const Tape& t) { return t.program().output_slots; })
      .def_property_readonly("constants", [](const Tape& t) { return t.program().constants; })
      .def_property_readonly("captured_slots",
                             [](const Tape& t) { return t.program().captured_slots; })
      .def_property_readonly("passing_slots",
                             [](const Tape& t) { return t.program().passing_slots; })
      .def_property_readonly("host_reads", [](const Tape& t) { return t.program().host_reads; })
      .def_property_readonly("mutations", [](const Tape& t) { return t.program().mutations; });
  m.def(
      "measure_peak_bytes",
      [](const py::object& callable, const std::string& device) {
        return MemoryMeter::watch(c10::Device(device), [&] { callable(); })->peak_bytes();
      },
      py::arg("callable"), py::arg("device"),
      "Peak memory above the start while `callable()` runs, its result included, in bytes.");
  m.def(
      "count_allocations",
      [](const py::object& callable, const std::string& device) {
        const auto meter = MemoryMeter::watch(c10::Device(device), [&] { callable(); });
        return std::make_pair(meter->allocations(), meter->allocated_bytes());
      },
      py::arg("callable"), py::arg("device"),
      "How often `callable()` allocates memory of the device, and how many bytes in all.");
  m.def(
      "list_undeclared_writes",
      [] {
        py::dict operators;
        for (const auto& [name, writes] : list_undeclared_writes()) {
          operators[py::str(name)] = py::make_tuple(writes.flag, writes.arguments);
        }
        return operators;
      },
      "By operator, what it writes without its schema saying so: (flag under which, arguments).");
  m.def("is_wrapped_number",
        [](const at::Tensor& t) { return t.unsafeGetTensorImpl()->is_wrapped_number(); });
}

}  // namespace ftax
