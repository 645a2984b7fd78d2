// Maps the core's errors to the classes of ftax.errors, so that Python code and C++ code raise the
// same types. The classes live in Python: they have other bases there (ValueError) and docstrings.
#include "bindings/bindings.h"
#include "core/error.h"
#include "measure/rounds.h"

namespace ftax {
namespace {

void raise(const char* name, const char* message) {
  const py::object type = py::module_::import("ftax.errors").attr(name);
  PyErr_SetString(type.ptr(), message);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): pybind11 wants this type
void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const Interrupted& error) {
    PyErr_SetString(PyExc_KeyboardInterrupt, error.what());
  } catch (const InvalidArgumentError& error) {
    raise("InvalidArgumentError", error.what());
  } catch (const UnsupportedError& error) {
    raise("UnsupportedError", error.what());
  } catch (const UnavailableError& error) {
    raise("UnavailableError", error.what());
  } catch (const RunnerError& error) {
    raise("RunnerError", error.what());
  } catch (const Error& error) {
    raise("FtaxError", error.what());
  }
}

}  // namespace

void bind_errors(py::module_&) { py::register_local_exception_translator(translate); }

}  // namespace ftax
