// Calls through the slots of slots.h: a status becomes an exception, a handle gets an owner. A
// deleter carries the table that it calls, so that a handle can be released without asking which
// library is loaded.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "onnxruntime/slots.h"

namespace ftax::onnxruntime {

// The table of one loaded library. Copied freely: it is one pointer, valid as long as the process.
class Api {
 public:
  Api() = default;
  explicit Api(const void* table) : table_(static_cast<const Function*>(table)) {}

  template <typename R, typename... P, typename... A>
  R call(const Slot<R(P...)>& slot, A... arguments) const {
    return reinterpret_cast<R (*)(P...)>(table_[slot.index])(arguments...);
  }

  // Throws, with `remedy` at the end of its message, if the call returns a status (Note [Error
  // classes]).
  template <typename... P, typename... A>
  void check(std::string_view remedy, const Slot<OrtStatus*(P...)>& slot, A... arguments) const {
    if (OrtStatus* status = call(slot, arguments...)) throw_status(status, slot.name, remedy);
  }

  // For a call whose last parameter receives a new handle: the handle, owned.
  template <typename Unique, typename... P, typename... A>
  [[nodiscard]] Unique make(std::string_view remedy, const Slot<OrtStatus*(P...)>& slot,
                            A... arguments) const {
    typename Unique::pointer handle = nullptr;
    check(remedy, slot, arguments..., &handle);
    return Unique(handle, typename Unique::deleter_type{*this});
  }

  // "NAME: message" of a status, which is released.
  [[nodiscard]] std::string take_message(OrtStatus* status) const;

 private:
  using Function = void (*)();
  [[noreturn]] void throw_status(OrtStatus* status, const char* call,
                                 std::string_view remedy) const;

  const Function* table_ = nullptr;
};

template <const auto& kRelease>
struct Deleter {
  Api api;
  template <typename Handle>
  void operator()(Handle* handle) const {
    api.call(kRelease, handle);
  }
};

using UniqueSession = std::unique_ptr<OrtSession, Deleter<kReleaseSession>>;
using UniqueSessionOptions = std::unique_ptr<OrtSessionOptions, Deleter<kReleaseSessionOptions>>;
using UniqueRunOptions = std::unique_ptr<OrtRunOptions, Deleter<kReleaseRunOptions>>;
using UniqueIoBinding = std::unique_ptr<OrtIoBinding, Deleter<kReleaseIoBinding>>;
using UniqueValue = std::unique_ptr<OrtValue, Deleter<kReleaseValue>>;
using UniqueMemoryInfo = std::unique_ptr<OrtMemoryInfo, Deleter<kReleaseMemoryInfo>>;
using UniqueTypeInfo = std::unique_ptr<OrtTypeInfo, Deleter<kReleaseTypeInfo>>;
using UniqueTensorInfo =
    std::unique_ptr<OrtTensorTypeAndShapeInfo, Deleter<kReleaseTensorTypeAndShapeInfo>>;
using UniqueCudaOptions =
    std::unique_ptr<OrtCUDAProviderOptionsV2, Deleter<kReleaseCUDAProviderOptions>>;

// The remedy for calls that fail only if the library is damaged or is not what it says.
inline constexpr std::string_view kReinstall =
    "this call fails only in a damaged library: `pip install --force-reinstall onnxruntime`";

}  // namespace ftax::onnxruntime
