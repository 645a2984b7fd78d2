// CUPTI, opened at run time: ftax neither links nor needs it to be imported. A copy that is already
// loaded comes first. torch brings one, and a second copy in the process would compete with it for
// the driver.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <string>

namespace ftax::cupti {

#define FTAX_CUPTI_FUNCTIONS(X)             \
  X(cuptiGetVersion)                        \
  X(cuptiGetResultString)                   \
  X(cuptiGetCallbackName)                   \
  X(cuptiActivityRegisterCallbacks)         \
  X(cuptiActivityRegisterTimestampCallback) \
  X(cuptiActivityEnable)                    \
  X(cuptiActivityDisable)                   \
  X(cuptiActivityFlushAll)                  \
  X(cuptiActivityGetNextRecord)             \
  X(cuptiActivityGetNumDroppedRecords)      \
  X(cuptiSubscribe)                         \
  X(cuptiUnsubscribe)                       \
  X(cuptiFinalize)

struct Functions {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name is declared
#define FTAX_DECLARE(name) decltype(&::name) name = nullptr;
  FTAX_CUPTI_FUNCTIONS(FTAX_DECLARE)
#undef FTAX_DECLARE
};

class Library {
 public:
  // The library of this process, opened at the first call: the file that FTAX_CUPTI_LIBRARY names,
  // else the copy that is loaded, else the one that the loader or a toolkit has. Throws
  // UnavailableError if there is none, or one that ftax cannot use.
  [[nodiscard]] static const Library& open();

  // The library in `file`; "" searches as above. It is never closed: CUPTI calls back into ftax
  // for as long as it likes.
  explicit Library(const std::string& file);

  [[nodiscard]] const Functions& functions() const { return functions_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint32_t version() const { return version_; }

  // A function that not every version has; nullptr where this one lacks it.
  [[nodiscard]] void* find(const char* name) const noexcept;

  // Throws UnavailableError naming the call, CUPTI's code and what to do, unless it is a success.
  void check(CUptiResult result, const std::string& call) const;

 private:
  Functions functions_;
  void* handle_ = nullptr;
  std::string path_;
  uint32_t version_ = 0;
};

}  // namespace ftax::cupti
