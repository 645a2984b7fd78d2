// Writes down the operator calls of a thread, and of the threads that run its backward pass, as
// torch's own profiling hooks report them: a check of a tape below autograd. It holds no
// tensor. A TorchDispatchMode would: its wrappers have autograd copy where it would have added in
// place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ftax {

struct LoggedCall {
  std::string name;                          // "aten::add.Tensor"
  std::vector<std::vector<int64_t>> shapes;  // of its tensors, those in lists included
  // Among its arguments, those in lists included, but for how far a generator is.
  std::vector<int64_t> integers;
  int depth = 0;        // of calls within which it was made
  bool raised = false;  // it ended with an error, before its kernel or in it
};

// Calls of operators that have a kernel of their own, in the order in which they begin: what
// composite operators are made of, and what a kernel calls in turn. One at a time in a process.
class CallLog {
 public:
  CallLog() = default;
  ~CallLog() { stop(); }
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // Throws UnavailableError if another log is under way.
  void start();
  void stop();
  // Of a log that is stopped.
  [[nodiscard]] const std::vector<LoggedCall>& calls() const { return calls_; }

  // Its place among the calls.
  size_t add(LoggedCall call) {
    calls_.push_back(std::move(call));
    return calls_.size() - 1;
  }
  void mark_raised(size_t place) { calls_.at(place).raised = true; }

  // When the first of the calls began and the last one ended, as `now_ns` tells; 0 without calls.
  [[nodiscard]] int64_t began_ns() const { return began_ns_; }
  [[nodiscard]] int64_t ended_ns() const { return ended_ns_; }
  void note_begin(int64_t now) { began_ns_ = began_ns_ == 0 ? now : began_ns_; }
  void note_end(int64_t now) { ended_ns_ = now; }

 private:
  uint64_t handle_ = 0;  // 0: not started
  std::vector<LoggedCall> calls_;
  int64_t began_ns_ = 0, ended_ns_ = 0;
};

}  // namespace ftax
