// What is measured may communicate with other processes, which then measure it at the same time.
// They run the same requests in the same order, since nothing that differs between them decides
// anything: each clock is read, and all go by the largest of what was read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "measure/runner_wrapper.h"

namespace ftax {

// The largest of the numbers that all these processes give. Returns when each has given one, so it
// is a barrier too, and throws where one of them has ended. Empty: this process measures alone.
using Agree = std::function<int64_t(int64_t)>;

[[nodiscard]] inline int64_t agree_on(const Agree& agree, int64_t own) {
  return agree ? agree(own) : own;
}

// Whether it is true in any of the processes.
[[nodiscard]] inline bool agree_if_any(const Agree& agree, bool own) {
  return agree_on(agree, own ? 1 : 0) != 0;
}

// Begins its requests when all processes have prepared theirs.
class PairedRunner final : public RunnerWrapper {
 public:
  PairedRunner(std::shared_ptr<Runner> inner, const Agree& agree)
      : RunnerWrapper(std::move(inner)), agree_(agree) {}

  void prepare() override {
    RunnerWrapper::prepare();
    agree_(0);
  }

 private:
  const Agree& agree_;
};

}  // namespace ftax
