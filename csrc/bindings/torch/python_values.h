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

}  // namespace ftax
