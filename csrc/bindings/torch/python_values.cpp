// What Python code can do nothing with but read its value.
#include "bindings/torch/python_values.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/Size.h>

#include <cstring>

namespace ftax {
namespace {

bool has_same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool is_equal(PyObject* a, PyObject* b) {
  const int result = PyObject_RichCompareBool(a, b, Py_EQ);
  if (result < 0) throw pybind11::error_already_set();
  return result == 1;
}

}  // namespace

bool is_plain_value(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
         PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) ||
         PyComplex_CheckExact(value) || THPDtype_Check(value) || THPDevice_Check(value) ||
         THPLayout_Check(value) || THPMemoryFormat_Check(value) || THPSize_Check(value) ||
         PySlice_Check(value) || value == Py_Ellipsis;
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
  return is_plain_value(before) && is_equal(before, now);
}

}  // namespace ftax
