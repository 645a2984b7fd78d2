// One table serves both directions; strings and packed 4-bit types are left out because no torch
// tensor has them.
#include "onnxruntime/element_type.h"

#include "core/error.h"

namespace ftax::onnxruntime {
namespace {

constexpr ElementType kElementTypes[] = {
    {1, "float32", 4},    {2, "uint8", 1},        {3, "int8", 1},      {4, "uint16", 2},
    {5, "int16", 2},      {6, "int32", 4},        {7, "int64", 8},     {9, "bool", 1},
    {10, "float16", 2},   {11, "float64", 8},     {12, "uint32", 4},   {13, "uint64", 8},
    {14, "complex64", 8}, {15, "complex128", 16}, {16, "bfloat16", 2},
};

}  // namespace

const ElementType& find_element_type(const std::string& name) {
  std::string known;
  for (const ElementType& type : kElementTypes) {
    if (name == type.name) return type;
    known += std::string(known.empty() ? "" : ", ") + type.name;
  }
  throw InvalidArgumentError("element type '" + name +
                             "' is none that ONNX Runtime takes: use one of " + known);
}

const ElementType& find_element_type(int code) {
  for (const ElementType& type : kElementTypes) {
    if (code == type.code) return type;
  }
  throw UnsupportedError(
      "the model uses ONNX element type " + std::to_string(code) +
      " (a string or a packed type), which no torch tensor has; convert it with a "
      "Cast at the model's edge");
}

size_t compute_bytes(const ElementType& type, const std::vector<int64_t>& shape) {
  size_t bytes = type.bytes;
  for (const int64_t size : shape) {
    if (size < 0) {
      throw InvalidArgumentError("a dimension of " + std::to_string(size) +
                                 " is negative; pass the sizes of the tensor that is bound");
    }
    bytes *= static_cast<size_t>(size);
  }
  return bytes;
}

}  // namespace ftax::onnxruntime
