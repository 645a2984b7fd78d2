// Shows Python's collector of garbage what a C++ object holds, so that a cycle through it can go: a
// model that keeps its own capture, with all the memory of both.
#pragma once

#include <pybind11/pybind11.h>

namespace ftax {

inline bool is_made(PyObject* self) {
  return reinterpret_cast<pybind11::detail::instance*>(self)
      ->get_value_and_holder()
      .holder_constructed();
}

// `T` has `int traverse(visitproc, void*) const` and `void clear()`, which lets go of all of it.
template <class T>
pybind11::custom_type_setup make_collectable() {
  return pybind11::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject& type = heap_type->ht_type;
    type.tp_flags |= Py_TPFLAGS_HAVE_GC;
    type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      Py_VISIT(Py_TYPE(self));
      if (!is_made(self)) return 0;
      return pybind11::cast<T&>(pybind11::handle(self)).traverse(visit, arg);
    };
    type.tp_clear = [](PyObject* self) {
      if (is_made(self)) {
        pybind11::cast<T&>(pybind11::handle(self)).clear();
      }
      return 0;
    };
  });
}

}  // namespace ftax
