// A library that says it is ONNX Runtime 1.10, older than ftax supports. Its version tells whether
// telemetry was switched off by the time it was loaded; it has no table, because asking an old
// library for one would print to stderr.
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

struct OrtApiBase {
  const void* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

const char* read_telemetry() {
  const char* value = std::getenv("ORT_DISABLE_TELEMETRY");
  return value == nullptr ? "unset" : value;
}

const std::string version = std::string("1.10.0 (ORT_DISABLE_TELEMETRY=") + read_telemetry() + ")";

const void* get_api(uint32_t) { std::abort(); }
const char* get_version() { return version.c_str(); }
constexpr OrtApiBase kBase{get_api, get_version};

}  // namespace

extern "C" const OrtApiBase* OrtGetApiBase() { return &kBase; }
