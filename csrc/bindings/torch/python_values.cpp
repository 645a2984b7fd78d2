// What Python code can do nothing with but read its value.
#include "bindings/torch/python_values.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/Size.h>

#include <bit>
#include <cstdint>

namespace ftax {
namespace {

bool has_same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool is_equal(PyObject* a, PyObject* b) {
  const int result = PyObject_RichCompareBool(a, b, Py_EQ);
  if (result < 0) throw pybind11::error_already_set();
  return result == 1;
}

// Whether `value` is an instance of the class of that name in a Python module, if anybody has
// imported that. Most values have been told by then.
bool is_instance(PyObject* value, const char* module, const char* name) {
  const auto found = pybind11::reinterpret_steal<pybind11::object>(
      PyImport_GetModule(pybind11::str(module).ptr()));
  return found && pybind11::isinstance(value, found.attr(name));
}

// In their order, which a call may go by.
bool has_same_items(PyObject* before, PyObject* now) {
  if (PySet_GET_SIZE(before) != PySet_GET_SIZE(now)) return false;
  const auto other = pybind11::reinterpret_steal<pybind11::object>(PyObject_GetIter(now));
  for (const pybind11::handle item : pybind11::handle(before)) {
    const auto next = pybind11::reinterpret_steal<pybind11::object>(PyIter_Next(other.ptr()));
    if (!is_same_value(item.ptr(), next.ptr())) return false;
  }
  return true;
}

bool has_same_places(PyObject* before, PyObject* now) {
  const Py_ssize_t count = PyTuple_GET_SIZE(before);
  if (PyTuple_GET_SIZE(now) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_same_value(PyTuple_GET_ITEM(before, i), PyTuple_GET_ITEM(now, i))) return false;
  }
  return true;
}

bool is_plain_object(PyObject* value) {
  if (PyFrozenSet_CheckExact(value)) {
    for (const pybind11::handle item : pybind11::handle(value)) {
      if (!is_plain_value(item.ptr())) return false;
    }
    return true;
  }
  return Py_TYPE(value) == &PyRange_Type || is_instance(value, "pathlib", "PurePath") ||
         is_instance(value, "numpy", "generic");
}

}  // namespace

bool is_plain_value(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
         PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) ||
         PyComplex_CheckExact(value) || THPDtype_Check(value) || THPDevice_Check(value) ||
         THPLayout_Check(value) || THPMemoryFormat_Check(value) || THPSize_Check(value) ||
         PySlice_Check(value) || value == Py_Ellipsis || is_plain_object(value);
}

bool is_same_value(PyObject* before, PyObject* now) {
  if (before == now) return true;
  if (now == nullptr || before == nullptr || Py_TYPE(before) != Py_TYPE(now)) return false;
  if (PyFloat_CheckExact(before)) {
    return has_same_bits(PyFloat_AS_DOUBLE(before), PyFloat_AS_DOUBLE(now));
  }
  if (PyComplex_CheckExact(before)) {
    const Py_complex a = PyComplex_AsCComplex(before), b = PyComplex_AsCComplex(now);
    return has_same_bits(a.real, b.real) && has_same_bits(a.imag, b.imag);
  }
  if (PyFrozenSet_CheckExact(before)) return has_same_items(before, now);
  if (PyTuple_CheckExact(before)) return has_same_places(before, now);
  if (is_instance(before, "numpy", "generic")) {
    const pybind11::handle a(before), b(now);
    return is_equal(a.attr("tobytes")().ptr(), b.attr("tobytes")().ptr());
  }
  return is_plain_value(before) && is_equal(before, now);
}

}  // namespace ftax
