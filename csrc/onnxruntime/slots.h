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

inline constexpr Slot<ErrorCode(const OrtStatus*)> kGetErrorCode{1, "GetErrorCode"};
inline constexpr Slot<const char*(const OrtStatus*)> kGetErrorMessage{2, "GetErrorMessage"};
inline constexpr Slot<OrtStatus*(LogLevel, const char*, OrtEnv**)> kCreateEnv{3, "CreateEnv"};
inline constexpr Slot<OrtStatus*(const OrtEnv*)> kDisableTelemetryEvents{6,
                                                                         "DisableTelemetryEvents"};
inline constexpr Slot<OrtStatus*(const OrtEnv*, const char*, const OrtSessionOptions*,
                                 OrtSession**)>
    kCreateSession{7, "CreateSession"};
inline constexpr Slot<OrtStatus*(OrtSessionOptions**)> kCreateSessionOptions{
    10, "CreateSessionOptions"};
inline constexpr Slot<OrtStatus*(OrtSessionOptions*, ExecutionMode)> kSetSessionExecutionMode{
    13, "SetSessionExecutionMode"};
inline constexpr Slot<OrtStatus*(OrtSessionOptions*, GraphOptimization)>
    kSetSessionGraphOptimizationLevel{23, "SetSessionGraphOptimizationLevel"};
inline constexpr Slot<OrtStatus*(OrtSessionOptions*, int)> kSetIntraOpNumThreads{
    24, "SetIntraOpNumThreads"};
inline constexpr Slot<OrtStatus*(const OrtSession*, size_t*)> kSessionGetInputCount{
    30, "SessionGetInputCount"};
inline constexpr Slot<OrtStatus*(const OrtSession*, size_t*)> kSessionGetOutputCount{
    31, "SessionGetOutputCount"};
inline constexpr Slot<OrtStatus*(const OrtSession*, size_t, OrtTypeInfo**)>
    kSessionGetInputTypeInfo{33, "SessionGetInputTypeInfo"};
inline constexpr Slot<OrtStatus*(const OrtSession*, size_t, OrtTypeInfo**)>
    kSessionGetOutputTypeInfo{34, "SessionGetOutputTypeInfo"};
inline constexpr Slot<OrtStatus*(const OrtSession*, size_t, OrtAllocator*, char**)>
    kSessionGetInputName{36, "SessionGetInputName"};
inline constexpr Slot<OrtStatus*(const OrtSession*, size_t, OrtAllocator*, char**)>
    kSessionGetOutputName{37, "SessionGetOutputName"};
inline constexpr Slot<OrtStatus*(OrtRunOptions**)> kCreateRunOptions{39, "CreateRunOptions"};
inline constexpr Slot<OrtStatus*(const OrtMemoryInfo*, void*, size_t, const int64_t*, size_t, int,
                                 OrtValue**)>
    kCreateTensorWithDataAsOrtValue{49, "CreateTensorWithDataAsOrtValue"};
inline constexpr Slot<OrtStatus*(OrtValue*, void**)> kGetTensorMutableData{51,
                                                                           "GetTensorMutableData"};
inline constexpr Slot<OrtStatus*(const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**)>
    kCastTypeInfoToTensorInfo{55, "CastTypeInfoToTensorInfo"};
inline constexpr Slot<OrtStatus*(const OrtTypeInfo*, ValueKind*)> kGetOnnxTypeFromTypeInfo{
    56, "GetOnnxTypeFromTypeInfo"};
inline constexpr Slot<OrtStatus*(const OrtTensorTypeAndShapeInfo*, int*)> kGetTensorElementType{
    60, "GetTensorElementType"};
inline constexpr Slot<OrtStatus*(const OrtTensorTypeAndShapeInfo*, size_t*)> kGetDimensionsCount{
    61, "GetDimensionsCount"};
inline constexpr Slot<OrtStatus*(const OrtTensorTypeAndShapeInfo*, int64_t*, size_t)>
    kGetDimensions{62, "GetDimensions"};
inline constexpr Slot<OrtStatus*(const OrtTensorTypeAndShapeInfo*, const char**, size_t)>
    kGetSymbolicDimensions{63, "GetSymbolicDimensions"};
inline constexpr Slot<OrtStatus*(const OrtValue*, OrtTensorTypeAndShapeInfo**)>
    kGetTensorTypeAndShape{65, "GetTensorTypeAndShape"};
inline constexpr Slot<OrtStatus*(const char*, AllocatorType, int, MemoryType, OrtMemoryInfo**)>
    kCreateMemoryInfo{68, "CreateMemoryInfo"};
inline constexpr Slot<OrtStatus*(const OrtMemoryInfo*, const char**)> kMemoryInfoGetName{
    71, "MemoryInfoGetName"};
inline constexpr Slot<OrtStatus*(OrtAllocator*, void*)> kAllocatorFree{76, "AllocatorFree"};
inline constexpr Slot<OrtStatus*(OrtAllocator**)> kGetAllocatorWithDefaultOptions{
    78, "GetAllocatorWithDefaultOptions"};
inline constexpr Slot<void(OrtStatus*)> kReleaseStatus{93, "ReleaseStatus"};
inline constexpr Slot<void(OrtMemoryInfo*)> kReleaseMemoryInfo{94, "ReleaseMemoryInfo"};
inline constexpr Slot<void(OrtSession*)> kReleaseSession{95, "ReleaseSession"};
inline constexpr Slot<void(OrtValue*)> kReleaseValue{96, "ReleaseValue"};
inline constexpr Slot<void(OrtRunOptions*)> kReleaseRunOptions{97, "ReleaseRunOptions"};
inline constexpr Slot<void(OrtTypeInfo*)> kReleaseTypeInfo{98, "ReleaseTypeInfo"};
inline constexpr Slot<void(OrtTensorTypeAndShapeInfo*)> kReleaseTensorTypeAndShapeInfo{
    99, "ReleaseTensorTypeAndShapeInfo"};
inline constexpr Slot<void(OrtSessionOptions*)> kReleaseSessionOptions{100,
                                                                       "ReleaseSessionOptions"};
inline constexpr Slot<OrtStatus*(char***, int*)> kGetAvailableProviders{125,
                                                                        "GetAvailableProviders"};
inline constexpr Slot<OrtStatus*(char**, int)> kReleaseAvailableProviders{
    126, "ReleaseAvailableProviders"};
inline constexpr Slot<OrtStatus*(OrtSessionOptions*, const char*, const char*)>
    kAddSessionConfigEntry{130, "AddSessionConfigEntry"};
inline constexpr Slot<OrtStatus*(OrtSession*, const OrtRunOptions*, const OrtIoBinding*)>
    kRunWithBinding{133, "RunWithBinding"};
inline constexpr Slot<OrtStatus*(OrtSession*, OrtIoBinding**)> kCreateIoBinding{134,
                                                                                "CreateIoBinding"};
inline constexpr Slot<void(OrtIoBinding*)> kReleaseIoBinding{135, "ReleaseIoBinding"};
inline constexpr Slot<OrtStatus*(OrtIoBinding*, const char*, const OrtValue*)> kBindInput{
    136, "BindInput"};
inline constexpr Slot<OrtStatus*(OrtIoBinding*, const char*, const OrtValue*)> kBindOutput{
    137, "BindOutput"};
inline constexpr Slot<OrtStatus*(OrtIoBinding*, const char*, const OrtMemoryInfo*)>
    kBindOutputToDevice{138, "BindOutputToDevice"};
inline constexpr Slot<OrtStatus*(const OrtIoBinding*, OrtAllocator*, char**, size_t**, size_t*)>
    kGetBoundOutputNames{139, "GetBoundOutputNames"};
inline constexpr Slot<OrtStatus*(const OrtIoBinding*, OrtAllocator*, OrtValue***, size_t*)>
    kGetBoundOutputValues{140, "GetBoundOutputValues"};
inline constexpr Slot<OrtStatus*(OrtRunOptions*, const char*, const char*)> kAddRunConfigEntry{
    165, "AddRunConfigEntry"};
inline constexpr Slot<OrtStatus*(const OrtValue*, const OrtMemoryInfo**)> kGetTensorMemoryInfo{
    194, "GetTensorMemoryInfo"};
inline constexpr Slot<OrtStatus*(OrtIoBinding*)> kSynchronizeBoundInputs{202,
                                                                         "SynchronizeBoundInputs"};
inline constexpr Slot<OrtStatus*(OrtIoBinding*)> kSynchronizeBoundOutputs{
    203, "SynchronizeBoundOutputs"};
inline constexpr Slot<OrtStatus*(OrtSessionOptions*, const OrtCUDAProviderOptionsV2*)>
    kAppendExecutionProviderCuda{204, "SessionOptionsAppendExecutionProvider_CUDA_V2"};
inline constexpr Slot<OrtStatus*(OrtCUDAProviderOptionsV2**)> kCreateCudaProviderOptions{
    205, "CreateCUDAProviderOptions"};
inline constexpr Slot<OrtStatus*(OrtCUDAProviderOptionsV2*, StringList, StringList, size_t)>
    kUpdateCudaProviderOptions{206, "UpdateCUDAProviderOptions"};
inline constexpr Slot<void(OrtCUDAProviderOptionsV2*)> kReleaseCudaProviderOptions{
    208, "ReleaseCUDAProviderOptions"};
inline constexpr Slot<const char*()> kGetBuildInfoString{254, "GetBuildInfoString"};
inline constexpr Slot<OrtStatus*(OrtCUDAProviderOptionsV2*, const char*, void*)>
    kUpdateCudaProviderOptionsWithValue{263, "UpdateCUDAProviderOptionsWithValue"};
// All slots above are older; no older wheel has the library.
inline constexpr uint32_t kRequiredApiVersion = 20;
inline constexpr Slot<OrtStatus*(const OrtSession*, const OrtEpAssignedSubgraph* const**, size_t*)>
    kSessionGetEpGraphAssignmentInfo{407, "Session_GetEpGraphAssignmentInfo"};
inline constexpr Slot<OrtStatus*(const OrtEpAssignedSubgraph*, const char**)>
    kEpAssignedSubgraphGetEpName{408, "EpAssignedSubgraph_GetEpName"};
inline constexpr Slot<OrtStatus*(const OrtEpAssignedSubgraph*, const OrtEpAssignedNode* const**,
                                 size_t*)>
    kEpAssignedSubgraphGetNodes{409, "EpAssignedSubgraph_GetNodes"};
inline constexpr Slot<OrtStatus*(const OrtEpAssignedNode*, const char**)>
    kEpAssignedNodeGetOperatorType{412, "EpAssignedNode_GetOperatorType"};
inline constexpr uint32_t kAssignmentApiVersion = 24;  // the four slots above
// The newest that ftax was tested with. A newer one is held to the same answers (slot_check.h).
inline constexpr uint32_t kTestedApiVersion = 32;

}  // namespace ftax::onnxruntime
