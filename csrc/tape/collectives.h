// Note [Collectives without other ranks]
// A call is recorded by running it a dozen times, and a check of a replay runs it once more. Other
// ranks do not do so at the same moment, so none of these runs may communicate. Meanwhile each
// process group has a StandIn in the place of its backend, which answers in this process alone: as
// if every rank had given what this one gives, or with what other ranks gave in a run before. It
// also times collectives that the other ranks answer.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

namespace ftax {

// One that was called: which, by its arguments, and what tensors it was given and left.
struct Collective {
  std::string what;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
};

// The collectives of the thread that opens it, and of its backward passes, until it is closed.
// Those of other threads are answered by the other ranks.
class Collectives {
 public:
  enum class Answer {
    kAlone,    // as if all ranks gave the same
    kLogged,   // by the other ranks, and kept
    kTimed,    // by the other ranks, and timed until their results are there, of a device too
    kAligned,  // likewise, and each begins on all ranks at once: a barrier comes before its time
    kKept      // as they were kept, in the same order
  };

  // `groups`: names of process groups, as torch registers them.
  explicit Collectives(const std::vector<std::string>& groups);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  // Again while it is open: answers in another way. Throws UnavailableError if another one is open,
  // and UnsupportedError for a group whose backend cannot be replaced.
  void open(Answer answer);
  void close() noexcept;

  [[nodiscard]] const std::vector<Collective>& kept() const { return kept_; }
  // Those that were answered by `kKept`, since it was opened.
  [[nodiscard]] const std::vector<Collective>& repeated() const { return repeated_; }
  // How long those of `kTimed` and `kAligned` took since the last call, and how many they were.
  [[nodiscard]] std::pair<int64_t, int64_t> take_time();
  // Why one could not be answered, with a remedy; "" if all were.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  friend class StandIn;

  void replace(const std::string& name, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

  std::vector<std::pair<std::string, c10::intrusive_ptr<c10d::ProcessGroup>>> groups_;
  Answer answer_ = Answer::kAlone;
  std::unique_ptr<c10::DebugInfoGuard> open_;  // by which the thread is known; empty: closed
  std::vector<Collective> kept_;
  std::vector<Collective> repeated_;
  std::string refusal_;
  std::atomic<int64_t> time_ns_ = 0;  // autograd has other threads
  std::atomic<int64_t> timed_ = 0;
};

}  // namespace ftax
