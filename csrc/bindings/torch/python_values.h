// Python objects that a capture compares: held, and told apart from what may have taken their
// place.
#pragma once

#include <pybind11/pybind11.h>

namespace ftax {

// Whether `now` is what `before` was. Numbers, strings and their like are compared by type and
// value, bit for bit where they are floats (0.0 is not -0.0, and a NaN is itself); all else is the
// same object or not the same.
[[nodiscard]] bool is_same_value(PyObject* before, PyObject* now);

// Whether it is compared by value, so that its identity says nothing.
[[nodiscard]] bool is_plain_value(PyObject* value);

// Whether `now` still is what was expected, which it then becomes. Identity comes first: only a
// number or string that was replaced by an equal one is looked at closer, and only once.
inline bool accept(pybind11::object& expected, PyObject* now) {
  if (expected.ptr() == now) return true;
  if (!is_same_value(expected.ptr(), now)) return false;
  expected = pybind11::reinterpret_borrow<pybind11::object>(now);
  return true;
}

inline pybind11::object hold(PyObject* value) {
  return pybind11::reinterpret_borrow<pybind11::object>(value);
}

inline pybind11::object hold_or_none(PyObject* value) {
  return value == nullptr ? pybind11::object(pybind11::none()) : hold(value);
}

}  // namespace ftax
