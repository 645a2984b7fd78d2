// The real ONNX Runtime with two slots of its table exchanged: what a wrong number in slots.h, or a
// library that does not keep the public order, would be. FTAX_REAL is its path, FTAX_SWAP the two.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

struct OrtApiBase {
  const void* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

constexpr int kSlots = 264;  // those of 1.20 that ftax calls

const OrtApiBase* open_real() {
  void* handle = dlopen(std::getenv("FTAX_REAL"), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<const OrtApiBase* (*)()>(dlsym(handle, "OrtGetApiBase"))();
}

const void* get_api(uint32_t) {
  static const void* table[kSlots];
  const auto* const real = static_cast<const void* const*>(open_real()->get_api(20));
  std::copy(real, real + kSlots, table);
  int first = 0;
  int second = 0;
  std::sscanf(std::getenv("FTAX_SWAP"), "%d,%d", &first, &second);
  std::swap(table[first], table[second]);
  return table;
}

const char* get_version() { return "1.20.0"; }
constexpr OrtApiBase kBase{get_api, get_version};

}  // namespace

extern "C" const OrtApiBase* OrtGetApiBase() { return &kBase; }
