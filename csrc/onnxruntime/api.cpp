// Turns a failed status into the error class that says who has to act.
//
// Note [Error classes]
// A status code names the stage that noticed, not the cause. The codes that blame what the caller
// passed (a file, a graph, an argument) become InvalidArgumentError and a missing kernel becomes
// UnsupportedError; every other code means that ONNX Runtime itself gave up: RunnerError.
#include "onnxruntime/api.h"

#include "core/error.h"

namespace ftax::onnxruntime {
namespace {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "OK";
    case ErrorCode::kFail:
      return "FAIL";
    case ErrorCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case ErrorCode::kNoSuchFile:
      return "NO_SUCHFILE";
    case ErrorCode::kNoModel:
      return "NO_MODEL";
    case ErrorCode::kEngineError:
      return "ENGINE_ERROR";
    case ErrorCode::kRuntimeException:
      return "RUNTIME_EXCEPTION";
    case ErrorCode::kInvalidProtobuf:
      return "INVALID_PROTOBUF";
    case ErrorCode::kModelLoaded:
      return "MODEL_LOADED";
    case ErrorCode::kNotImplemented:
      return "NOT_IMPLEMENTED";
    case ErrorCode::kInvalidGraph:
      return "INVALID_GRAPH";
    case ErrorCode::kEpFail:
      return "EP_FAIL";
  }
  return "a code that is newer than ftax";
}

}  // namespace

std::string Api::take_message(OrtStatus* status) const {
  std::string message = to_string(call(kGetErrorCode, static_cast<const OrtStatus*>(status)));
  message += ": ";
  message += call(kGetErrorMessage, static_cast<const OrtStatus*>(status));
  call(kReleaseStatus, status);
  message.erase(message.find_last_not_of(" \n.") + 1);  // a remedy follows it
  return message;
}

void Api::throw_status(OrtStatus* status, const char* call_name, std::string_view remedy) const {
  const ErrorCode code = call(kGetErrorCode, static_cast<const OrtStatus*>(status));
  const std::string message = std::string("ONNX Runtime's ") + call_name + " failed with " +
                              take_message(status) + "; " + std::string(remedy);
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNoSuchFile:
    case ErrorCode::kNoModel:
    case ErrorCode::kInvalidProtobuf:
    case ErrorCode::kInvalidGraph:
      throw InvalidArgumentError(message);
    case ErrorCode::kNotImplemented:
      throw UnsupportedError(message);
    default:
      throw RunnerError(message);
  }
}

}  // namespace ftax::onnxruntime
