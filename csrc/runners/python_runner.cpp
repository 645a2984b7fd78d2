// One PyObject_CallNoArgs a request. An exception is turned into text here, while the GIL is held:
// the measuring core knows nothing of Python and may catch it without the GIL.
#include "runners/python_runner.h"

#include <utility>

#include "core/error.h"
#include "measure/rounds.h"

namespace ftax {
namespace {

// Throws `error` as RunnerError, which begins with `what`, or as Interrupted.
[[noreturn]] void rethrow(const pybind11::error_already_set& error, const std::string& name,
                          const char* what) {
  if (error.matches(PyExc_KeyboardInterrupt)) throw Interrupted("interrupted in " + name);
  throw RunnerError(name + " " + what + error.what());
}

class PythonScope final : public Runner::Scope {
 public:
  PythonScope(GradMode mode, const std::string& name, const pybind11::object& make)
      : grad_mode_(mode) {
    if (make.is_none()) return;
    try {
      manager_ = make();
      manager_.attr("__enter__")();
    } catch (pybind11::error_already_set& error) {
      rethrow(error, name, "could not enter its scope: ");
    }
  }

  ~PythonScope() override {
    if (!manager_) return;
    try {
      manager_.attr("__exit__")(pybind11::none(), pybind11::none(), pybind11::none());
    } catch (pybind11::error_already_set& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();  // nothing may be thrown here: it comes again, between two rounds
      } else {
        error.discard_as_unraisable("the scope of a runner");
      }
    }
  }

 private:
  pybind11::gil_scoped_acquire gil_;
  GradModeScope grad_mode_;
  pybind11::object manager_;
};

}  // namespace

void rethrow_python_error(const std::string& name) {
  const pybind11::error_already_set error;  // takes the error out of the interpreter
  rethrow(error, name, "raised ");
}

PythonRunner::PythonRunner(pybind11::object callable, std::string name, c10::Device device,
                           GradMode grad_mode, pybind11::object scope,
                           pybind11::object count_rebuilds)
    : callable_(std::move(callable)),
      name_(std::move(name)),
      sync_(device),
      grad_mode_(grad_mode),
      scope_(std::move(scope)),
      count_rebuilds_(std::move(count_rebuilds)) {
  if (PyCallable_Check(callable_.ptr()) == 0) {
    throw InvalidArgumentError(name_ + " is a " + Py_TYPE(callable_.ptr())->tp_name +
                               ", which cannot be called; pass a callable without arguments");
  }
}

std::unique_ptr<Runner::Scope> PythonRunner::enter() {
  return std::make_unique<PythonScope>(grad_mode_, name_, scope_);
}

int64_t PythonRunner::count_rebuilds() {
  if (count_rebuilds_.is_none()) return 0;
  try {
    return count_rebuilds_().cast<int64_t>();
  } catch (const pybind11::error_already_set& error) {
    rethrow(error, name_, "could not count its rebuilds: ");
  } catch (const pybind11::cast_error&) {
    throw RunnerError(name_ + " counts its rebuilds by something else than whole numbers");
  }
}

void PythonRunner::enqueue() {
  PyObject* result = PyObject_CallNoArgs(callable_.ptr());
  if (result == nullptr) rethrow_python_error(name_);
  Py_DECREF(result);
}

}  // namespace ftax
