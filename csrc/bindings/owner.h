// Lets a C++ object hold a Python object without knowing what it is.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

namespace ftax {

// The last copy may die where the GIL is not held.
inline std::shared_ptr<void> share_owner(pybind11::object owner) {
  return {new pybind11::object(std::move(owner)), [](void* pointer) {
            const pybind11::gil_scoped_acquire gil;
            delete static_cast<pybind11::object*>(pointer);
          }};
}

}  // namespace ftax
