// Holds the slots of slots.h against the library that was loaded: a number that is wrong, or a
// library whose table is not the public one, would otherwise call some other function in silence.
#pragma once

#include "onnxruntime/library.h"

namespace ftax::onnxruntime {

// Throws UnavailableError if a model whose answers are known is not answered as it should.
void check_slots(const Library& library);

}  // namespace ftax::onnxruntime
