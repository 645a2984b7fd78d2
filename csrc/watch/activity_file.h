// What the watched process writes and `ftax run` reads
// (python/ftax_run/src/ftax_run/activities.py): records of one size, and beside them the names that
// their `symbol` counts through.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace ftax::watch {

enum class Kind : uint16_t {
  kKernel = 1,
  kCopy = 2,
  kFill = 3,
  kGraph = 4,  // a whole graph launch, on the device
  kCall = 5,   // of the driver or the runtime, on the host: `stream` is the thread
  kPhase = 6,  // `symbol` says what is recorded from `start` to `end` (`Phase`)
  kLost = 7,   // `symbol` records found no room since the last of this kind
};

enum class Phase : uint32_t { kAll = 1, kLaunches = 2, kNothing = 3 };

struct Record {
  uint64_t start_ns = 0;  // CLOCK_MONOTONIC
  uint64_t end_ns = 0;
  uint32_t correlation = 0;  // the same for a call and for the work that it gave the device
  uint32_t stream = 0;
  uint32_t symbol = 0;  // the number of its name
  Kind kind = Kind::kKernel;
  uint16_t reserved = 0;
};
static_assert(sizeof(Record) == 32);

// The two files of a process. Every call may come from any thread.
class ActivityFile {
 public:
  // `<path>.activity` and `<path>.names`; false if they cannot be made.
  [[nodiscard]] bool open(const std::string& path);
  void append(const std::vector<Record>& records);
  uint32_t number(const std::string& name);
  // In a child after a fork: the files are its parent's.
  void forget() noexcept { records_ = names_ = -1; }

 private:
  std::mutex mutex_;
  int records_ = -1;
  int names_ = -1;
  std::unordered_map<std::string, uint32_t> numbers_;
};

}  // namespace ftax::watch
