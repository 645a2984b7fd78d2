// The order is that of a fresh request: tensors first, since what Python brings back may read them.
#include "runners/torch/state_runner.h"

#include "runners/python_runner.h"

namespace ftax {

StateRunner::StateRunner(std::shared_ptr<Runner> inner, std::shared_ptr<SavedState> each_sample,
                         std::shared_ptr<SavedState> each_round, pybind11::object reset)
    : RunnerWrapper(std::move(inner)),
      each_sample_(std::move(each_sample)),
      each_round_(std::move(each_round)),
      reset_(std::move(reset)) {}

// Under the inner runner's scope, as all that it runs.
void StateRunner::prepare() {
  RunnerWrapper::prepare();
  each_sample_->put_back();
  if (reset_.is_none()) return;
  const pybind11::gil_scoped_acquire gil;
  PyObject* result = PyObject_CallNoArgs(reset_.ptr());
  if (result == nullptr) rethrow_python_error(name() + ", being reset,");
  Py_DECREF(result);
}

bool StateRunner::needs_prepare() const {
  return RunnerWrapper::needs_prepare() || !each_sample_->is_empty() || !reset_.is_none();
}

std::unique_ptr<Runner::Scope> StateRunner::enter() {
  auto scope = RunnerWrapper::enter();
  each_round_->put_back();
  return scope;
}

}  // namespace ftax
