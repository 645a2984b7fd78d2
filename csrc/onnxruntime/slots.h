// Our own declaration of the part of ONNX Runtime's C interface that ftax calls; the wheels ship
// the library but no headers. The interface is declared as numbered slots, not as a struct. The
// public header (onnxruntime_c_api.h) is one table of function pointers to which every release only
// appends, so a slot's number and signature hold for all releases since the one that brought it in,
// and the hundreds of slots that we do not call need no declaration. slot_check.h holds them
// against the library that is loaded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ftax::onnxruntime {

// Opaque handles, under their public names.
struct OrtStatus;
struct OrtEnv;
struct OrtSession;
struct OrtSessionOptions;
struct OrtRunOptions;
struct OrtIoBinding;
struct OrtValue;
struct OrtMemoryInfo;
struct OrtAllocator;
struct OrtTypeInfo;
struct OrtTensorTypeAndShapeInfo;
struct OrtCUDAProviderOptionsV2;
struct OrtEpAssignedSubgraph;
struct OrtEpAssignedNode;

enum class ErrorCode : int {
  kOk = 0,
  kFail = 1,
  kInvalidArgument = 2,
  kNoSuchFile = 3,
  kNoModel = 4,
  kEngineError = 5,
  kRuntimeException = 6,
  kInvalidProtobuf = 7,
  kModelLoaded = 8,
  kNotImplemented = 9,
  kInvalidGraph = 10,
  kEpFail = 11,
};
enum class LogLevel : int { kFatal = 4 };
enum class GraphOptimization : int {
  kDisable = 0,
  kBasic = 1,
  kExtended = 2,
  kLayout = 3,
  kAll = 99
};
enum class ExecutionMode : int { kSequential = 0, kParallel = 1 };
enum class AllocatorType : int { kDevice = 0 };
enum class MemoryType : int { kDefault = 0 };
enum class ValueKind : int { kUnknown = 0, kTensor = 1 };

// What OrtGetApiBase() points to. GetApi returns null for a version newer than the library.
struct OrtApiBase {
  const void* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

template <typename Signature>
struct Slot {
  int index;
  const char* name;
};

using StringList = const char* const*;

// A slot has the number, the name and the signature of the public header.
#define FTAX_SLOT(number, name, ...) \
  inline constexpr Slot<__VA_ARGS__> k##name { number, #name }

FTAX_SLOT(1, GetErrorCode, ErrorCode(const OrtStatus*));
FTAX_SLOT(2, GetErrorMessage, const char*(const OrtStatus*));
FTAX_SLOT(3, CreateEnv, OrtStatus*(LogLevel, const char*, OrtEnv**));
FTAX_SLOT(6, DisableTelemetryEvents, OrtStatus*(const OrtEnv*));
FTAX_SLOT(7, CreateSession,
          OrtStatus*(const OrtEnv*, const char*, const OrtSessionOptions*, OrtSession**));
FTAX_SLOT(10, CreateSessionOptions, OrtStatus*(OrtSessionOptions**));
FTAX_SLOT(13, SetSessionExecutionMode, OrtStatus*(OrtSessionOptions*, ExecutionMode));
FTAX_SLOT(23, SetSessionGraphOptimizationLevel, OrtStatus*(OrtSessionOptions*, GraphOptimization));
FTAX_SLOT(24, SetIntraOpNumThreads, OrtStatus*(OrtSessionOptions*, int));
FTAX_SLOT(30, SessionGetInputCount, OrtStatus*(const OrtSession*, size_t*));
FTAX_SLOT(31, SessionGetOutputCount, OrtStatus*(const OrtSession*, size_t*));
FTAX_SLOT(33, SessionGetInputTypeInfo, OrtStatus*(const OrtSession*, size_t, OrtTypeInfo**));
FTAX_SLOT(34, SessionGetOutputTypeInfo, OrtStatus*(const OrtSession*, size_t, OrtTypeInfo**));
FTAX_SLOT(36, SessionGetInputName, OrtStatus*(const OrtSession*, size_t, OrtAllocator*, char**));
FTAX_SLOT(37, SessionGetOutputName, OrtStatus*(const OrtSession*, size_t, OrtAllocator*, char**));
FTAX_SLOT(39, CreateRunOptions, OrtStatus*(OrtRunOptions**));
FTAX_SLOT(49, CreateTensorWithDataAsOrtValue,
          OrtStatus*(const OrtMemoryInfo*, void*, size_t, const int64_t*, size_t, int, OrtValue**));
FTAX_SLOT(51, GetTensorMutableData, OrtStatus*(OrtValue*, void**));
FTAX_SLOT(55, CastTypeInfoToTensorInfo,
          OrtStatus*(const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**));
FTAX_SLOT(56, GetOnnxTypeFromTypeInfo, OrtStatus*(const OrtTypeInfo*, ValueKind*));
FTAX_SLOT(60, GetTensorElementType, OrtStatus*(const OrtTensorTypeAndShapeInfo*, int*));
FTAX_SLOT(61, GetDimensionsCount, OrtStatus*(const OrtTensorTypeAndShapeInfo*, size_t*));
FTAX_SLOT(62, GetDimensions, OrtStatus*(const OrtTensorTypeAndShapeInfo*, int64_t*, size_t));
FTAX_SLOT(63, GetSymbolicDimensions,
          OrtStatus*(const OrtTensorTypeAndShapeInfo*, const char**, size_t));
FTAX_SLOT(65, GetTensorTypeAndShape, OrtStatus*(const OrtValue*, OrtTensorTypeAndShapeInfo**));
FTAX_SLOT(68, CreateMemoryInfo,
          OrtStatus*(const char*, AllocatorType, int, MemoryType, OrtMemoryInfo**));
FTAX_SLOT(71, MemoryInfoGetName, OrtStatus*(const OrtMemoryInfo*, const char**));
FTAX_SLOT(76, AllocatorFree, OrtStatus*(OrtAllocator*, void*));
FTAX_SLOT(78, GetAllocatorWithDefaultOptions, OrtStatus*(OrtAllocator**));
FTAX_SLOT(93, ReleaseStatus, void(OrtStatus*));
FTAX_SLOT(94, ReleaseMemoryInfo, void(OrtMemoryInfo*));
FTAX_SLOT(95, ReleaseSession, void(OrtSession*));
FTAX_SLOT(96, ReleaseValue, void(OrtValue*));
FTAX_SLOT(97, ReleaseRunOptions, void(OrtRunOptions*));
FTAX_SLOT(98, ReleaseTypeInfo, void(OrtTypeInfo*));
FTAX_SLOT(99, ReleaseTensorTypeAndShapeInfo, void(OrtTensorTypeAndShapeInfo*));
FTAX_SLOT(100, ReleaseSessionOptions, void(OrtSessionOptions*));
FTAX_SLOT(125, GetAvailableProviders, OrtStatus*(char***, int*));
FTAX_SLOT(126, ReleaseAvailableProviders, OrtStatus*(char**, int));
FTAX_SLOT(130, AddSessionConfigEntry, OrtStatus*(OrtSessionOptions*, const char*, const char*));
FTAX_SLOT(133, RunWithBinding, OrtStatus*(OrtSession*, const OrtRunOptions*, const OrtIoBinding*));
FTAX_SLOT(134, CreateIoBinding, OrtStatus*(OrtSession*, OrtIoBinding**));
FTAX_SLOT(135, ReleaseIoBinding, void(OrtIoBinding*));
FTAX_SLOT(136, BindInput, OrtStatus*(OrtIoBinding*, const char*, const OrtValue*));
FTAX_SLOT(137, BindOutput, OrtStatus*(OrtIoBinding*, const char*, const OrtValue*));
FTAX_SLOT(138, BindOutputToDevice, OrtStatus*(OrtIoBinding*, const char*, const OrtMemoryInfo*));
FTAX_SLOT(139, GetBoundOutputNames,
          OrtStatus*(const OrtIoBinding*, OrtAllocator*, char**, size_t**, size_t*));
FTAX_SLOT(140, GetBoundOutputValues,
          OrtStatus*(const OrtIoBinding*, OrtAllocator*, OrtValue***, size_t*));
FTAX_SLOT(165, AddRunConfigEntry, OrtStatus*(OrtRunOptions*, const char*, const char*));
FTAX_SLOT(194, GetTensorMemoryInfo, OrtStatus*(const OrtValue*, const OrtMemoryInfo**));
FTAX_SLOT(202, SynchronizeBoundInputs, OrtStatus*(OrtIoBinding*));
FTAX_SLOT(203, SynchronizeBoundOutputs, OrtStatus*(OrtIoBinding*));
FTAX_SLOT(204, SessionOptionsAppendExecutionProvider_CUDA_V2,
          OrtStatus*(OrtSessionOptions*, const OrtCUDAProviderOptionsV2*));
FTAX_SLOT(205, CreateCUDAProviderOptions, OrtStatus*(OrtCUDAProviderOptionsV2**));
FTAX_SLOT(206, UpdateCUDAProviderOptions,
          OrtStatus*(OrtCUDAProviderOptionsV2*, StringList, StringList, size_t));
FTAX_SLOT(208, ReleaseCUDAProviderOptions, void(OrtCUDAProviderOptionsV2*));
FTAX_SLOT(254, GetBuildInfoString, const char*());
FTAX_SLOT(263, UpdateCUDAProviderOptionsWithValue,
          OrtStatus*(OrtCUDAProviderOptionsV2*, const char*, void*));
// All slots above are older; no older wheel has the library.
inline constexpr uint32_t kRequiredApiVersion = 20;
FTAX_SLOT(407, Session_GetEpGraphAssignmentInfo,
          OrtStatus*(const OrtSession*, const OrtEpAssignedSubgraph* const**, size_t*));
FTAX_SLOT(408, EpAssignedSubgraph_GetEpName,
          OrtStatus*(const OrtEpAssignedSubgraph*, const char**));
FTAX_SLOT(409, EpAssignedSubgraph_GetNodes,
          OrtStatus*(const OrtEpAssignedSubgraph*, const OrtEpAssignedNode* const**, size_t*));
FTAX_SLOT(412, EpAssignedNode_GetOperatorType, OrtStatus*(const OrtEpAssignedNode*, const char**));
inline constexpr uint32_t kAssignmentApiVersion = 24;  // the four slots above
// The newest that ftax was tested with. A newer one is held to the same answers (slot_check.h).
inline constexpr uint32_t kTestedApiVersion = 32;

#undef FTAX_SLOT

}  // namespace ftax::onnxruntime
