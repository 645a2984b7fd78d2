// Element types of tensors under torch's names ("float32"), numbered as in ONNX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ftax::onnxruntime {

struct ElementType {
  int code;          // ONNXTensorElementDataType
  const char* name;  // what torch calls it
  size_t bytes;      // of one element
};

// Throws InvalidArgumentError for a name, or UnsupportedError for a code, that is no plain number.
[[nodiscard]] const ElementType& find_element_type(const std::string& name);
[[nodiscard]] const ElementType& find_element_type(int code);

// Bytes of a dense tensor. Throws InvalidArgumentError if a dimension is negative.
[[nodiscard]] size_t compute_bytes(const ElementType& type, const std::vector<int64_t>& shape);

}  // namespace ftax::onnxruntime
