// Recording, as Python drives it, and the log that a recording is held against. Two observers feed
// the same Recorder: the dispatch key (start and stop) and, where torch does not offer it, a
// TorchDispatchMode written in Python (call).
#include <ATen/ops/empty.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "core/error.h"
#include "tape/call_log.h"
#include "tape/dispatch_scope.h"
#include "tape/other_threads.h"
#include "tape/own_generators.h"
#include "tape/recorder.h"
#include "tape/tape.h"

namespace ftax {
namespace {

// How often C++ and Python hold a tensor. Torch keeps the Python object of one for as long as C++
// holds it, and its versions count that differently.
struct Holders {
  explicit Holders(const at::Tensor& tensor)
      : object(py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor))),
        tensors(tensor.use_count()),
        objects(object.ref_count()) {}

  py::object object;
  size_t tensors;
  py::ssize_t objects;
};

// By comparison with a tensor that is held so often and not in Python.
bool is_held(const at::Tensor& tensor, size_t times) {
  const std::vector<at::Tensor> free(times, at::empty({0}));
  const Holders expected(free.front()), found(tensor);
  return found.tensors != expected.tensors || found.objects != expected.objects;
}

// A Recorder together with the observer that feeds it.
class Recording {
 public:
  Recording(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& weights,
            const std::string& device, Level level)
      : recorder_(std::make_shared<Recorder>(inputs, weights, c10::Device(device), level)) {}

  void start() { scope_ = std::make_unique<DispatchScope>(recorder_); }
  void stop() { scope_.reset(); }
  [[nodiscard]] bool is_inside_call() const { return InsideCall::is_here(recorder_->level()); }
  void refuse(const std::string& what) { recorder_->refuse(what); }
  void begin_backward(const std::vector<at::Tensor>& roots) { recorder_->begin_backward(roots); }
  void end_backward(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& gradients,
                    bool keeps_graph) {
    recorder_->end_backward(roots, gradients, keeps_graph);
  }
  void set_module(std::string path) { recorder_->set_module(std::move(path)); }

  py::object call(const py::function& func, const std::string& name, const std::string& overload,
                  const py::tuple& args, const py::kwargs& kwargs) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    const torch::jit::ToIValueAllowNumbersAsTensors numbers(true);
    const auto given = torch::jit::createStackForSchema(
        op.schema(), torch::jit::tuple_slice(py::tuple(args)), kwargs, std::nullopt);
    const InsideCall inside(recorder_->level());
    auto pending = recorder_->begin(op, given, /*hidden=*/false);
    py::object result;
    try {
      result = func(*args, **kwargs);
    } catch (...) {
      recorder_->raised();
      throw;
    }
    const auto& returns = op.schema().returns();
    std::vector<c10::IValue> stack;
    if (returns.size() == 1) {
      stack.push_back(torch::jit::toIValue(result, returns[0].type()));
    } else if (returns.size() > 1) {
      const auto items = result.cast<py::tuple>();
      for (size_t i = 0; i < returns.size(); ++i) {
        stack.push_back(torch::jit::toIValue(items[i], returns[i].type()));
      }
    }
    recorder_->end(std::move(pending), stack);
    return result;
  }

  [[nodiscard]] std::shared_ptr<Tape> finish(const std::vector<at::Tensor>& outputs) {
    stop();
    return std::make_shared<Tape>(recorder_->finish(outputs, is_held));
  }

 private:
  std::shared_ptr<Recorder> recorder_;
  std::unique_ptr<DispatchScope> scope_;
};

// As a context of Python.
class GeneratorScope {
 public:
  explicit GeneratorScope(std::vector<at::Generator> generators)
      : generators_(std::move(generators)) {}
  void enter() { scope_ = std::make_unique<OwnGenerators>(generators_); }
  void exit(const py::args&) { scope_.reset(); }

 private:
  std::vector<at::Generator> generators_;
  std::unique_ptr<OwnGenerators> scope_;
};

}  // namespace

void bind_recorder(py::module_& m) {
  py::class_<GeneratorScope>(m, "OwnGenerators",
                             "A context in which operators without a generator get one of these.")
      .def(py::init<std::vector<at::Generator>>(), py::arg("generators"))
      .def("__enter__", &GeneratorScope::enter)
      .def("__exit__", &GeneratorScope::exit);
  m.def(
      "exclude_own_generators",
      [](bool excluded) {
        const bool before = c10::impl::tls_is_dispatch_key_excluded(OwnGenerators::kKey);
        c10::impl::tls_set_dispatch_key_excluded(OwnGenerators::kKey, excluded);
        return before;
      },
      py::arg("excluded"),
      "Whether what this thread calls passes them by, as torch has it in a mode; how it was.");
  py::enum_<Level>(m, "Level", "Where a recording sees operator calls.")
      .value("above_autograd", Level::kAboveAutograd)
      .value("with_autograd", Level::kWithAutograd)
      .value("below_autograd", Level::kBelowAutograd);
  // Without the GIL: a thread of the model may be inside the recorder, and wait for it.
  const py::call_guard<py::gil_scoped_release> free;
  py::class_<Recording>(m, "Recording")
      .def(py::init<const std::vector<at::Tensor>&, const std::vector<at::Tensor>&,
                    const std::string&, Level>(),
           py::arg("inputs"), py::arg("weights"), py::arg("device"),
           py::arg("level") = Level::kAboveAutograd)
      .def("start", &Recording::start, "Observe this thread through the dispatch key.")
      .def("stop", &Recording::stop, free)
      .def_property_readonly("is_inside_call", &Recording::is_inside_call,
                             "Whether this thread is in an operator that was observed.")
      .def("refuse", &Recording::refuse, py::arg("what"), free,
           "No tape: `finish` raises the reason.")
      .def("begin_backward", &Recording::begin_backward, py::arg("roots"), free)
      .def("end_backward", &Recording::end_backward, py::arg("roots"), py::arg("gradients"),
           py::arg("keeps_graph"), free)
      .def("set_module", &Recording::set_module, py::arg("path"), free)
      .def("call", &Recording::call, py::arg("func"), py::arg("name"), py::arg("overload"),
           py::arg("args"), "Call an operator, and record it if it returns.")
      .def("finish", &Recording::finish, py::arg("outputs"));
  py::class_<CallLog>(m, "CallLog")
      .def(py::init<>())
      .def("start", &CallLog::start, "Log the calls of this thread.")
      .def("stop", &CallLog::stop)
      .def_property_readonly("began_ns", &CallLog::began_ns,
                             "When the first call began, as time.monotonic_ns() tells; 0: none.")
      .def_property_readonly("ended_ns", &CallLog::ended_ns, "When the last call ended.")
      .def_property_readonly(
          "calls",
          [](const CallLog& log) {
            py::list calls;
            for (const LoggedCall& call : log.calls()) {
              calls.append(
                  py::make_tuple(call.name, call.shapes, call.integers, call.depth, call.raised));
            }
            return calls;
          },
          "Of each call its name, the shapes of its tensors, the integers given to it, its depth, "
          "and whether it raised.");
  m.def("watch_other_threads", &watch_other_threads,
        "Note operators that other threads call, but for those of a backward pass.");
  m.def("unwatch_other_threads", &unwatch_other_threads,
        "The first that they called since; empty if none.");
}

}  // namespace ftax
