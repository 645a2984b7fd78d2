// Turns the operator calls of one real eager inference into a Program. It does not intercept calls
// itself: an observer (the dispatch keys of dispatch_scope.h, or a TorchDispatchMode in Python)
// reports each call before and after it runs.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tape/lifetimes.h"
#include "tape/program.h"
#include "tape/slots.h"
#include "tape/thread_state.h"
#include "tape/unwritten_memory.h"

namespace ftax {

// Where calls are seen: as the model makes them, or as autograd, autocast and composite operators
// have left them, with those of the backward pass.
// With autograd: above it too, with its backward pass as one call.
enum class Level { kAboveAutograd, kWithAutograd, kBelowAutograd };

class Recorder {
 public:
  // `inputs` can be rebound when the tape is replayed; `weights` are parameters, buffers and what
  // else outlives the call.
  Recorder(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& weights,
           c10::Device device, Level level);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // A call that has begun. Between `begin` and `end` the observer runs the operator; if that
  // raises, `raised` ends the recording in the place of `end`.
  struct Pending {
    Call call;
    // Arguments that nobody was seen to write, and what they held before the call.
    std::vector<std::pair<at::Tensor, at::Tensor>> fills;
    // Arguments in device memory that nobody was seen to write, and that cannot be copied cheaply.
    std::vector<at::Tensor> unwritten;
    // Arguments, and where their elements are; null where they have no one memory.
    std::vector<std::pair<int, c10::StorageImpl*>> given;
    bool mutates_outside = false;
  };

  // `stack` ends with the call's arguments / results. Neither throws: the first problem is kept,
  // recording stops there, the inference runs on, and `finish` throws it. `hidden`: see Call.
  // Threads that the model started may still call after `close`: that is not recorded.
  [[nodiscard]] std::optional<Pending> begin(const c10::OperatorHandle& op,
                                             const std::vector<c10::IValue>& stack,
                                             bool hidden) noexcept;
  void end(std::optional<Pending> pending, const std::vector<c10::IValue>& stack) noexcept;

  void raised() noexcept;
  void close() noexcept;

  [[nodiscard]] Level level() const { return level_; }

  // Dotted path of the module whose forward runs now.
  void set_module(std::string path);

  // A backward pass from `roots` to all leaves of their graph: what autograd's engine calls is the
  // replayed engine's to call.
  void begin_backward(const std::vector<at::Tensor>& roots);
  void end_backward(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& gradients,
                    bool keeps_graph) noexcept;

  // Ends the recording with this reason, as if a call could not be taped.
  void refuse(const std::string& what) noexcept;

  // The program, its outputs being these tensors. Throws UnsupportedError, naming operator and
  // module, if the inference cannot be taped. Call once.
  [[nodiscard]] Program finish(const std::vector<at::Tensor>& outputs, const IsHeld& is_held);

 private:
  void convert_arguments(Pending& pending, const std::vector<c10::IValue>& stack);
  [[nodiscard]] Argument convert(const c10::IValue& value);
  [[nodiscard]] Argument convert_tensor(const at::Tensor& tensor);
  void note_access(Pending& pending, const at::Tensor& tensor, bool is_written, bool is_read);
  static void note_shared(Pending& pending, const at::Tensor& result);
  void commit_fills(Pending& pending, const std::vector<c10::IValue>& stack);
  [[nodiscard]] Output add_output(const c10::IValue& value);
  void refuse_unwritten(const Pending& pending, const std::vector<c10::IValue>& stack) const;
  void fail(const std::string& what) noexcept;

  Program program_;
  std::string module_path_;
  std::string operator_name_;
  std::string failure_;
  c10::Device device_;
  Level level_;
  ThreadState state_;
  std::mutex mutex_;  // the backward pass has threads of its own
  bool is_closed_ = false;
  Slots slots_;
  UnwrittenMemory unwritten_;
  // Of the backward pass that runs: its leaves, and whether they had gradients before.
  std::optional<std::vector<std::pair<at::Tensor, bool>>> backward_;
  std::vector<std::pair<int, at::Tensor>> leaves_;  // of all backward passes that outlive the call
};

}  // namespace ftax
