// A runner that follows a script and writes down everything that the loop does with it. It spins
// instead of sleeping, because a sleep ends when the scheduler likes, which may be much too late.
#pragma once

#include <atomic>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "measure/affinity.h"
#include "measure/runner.h"

namespace ftax {

// What happened, in order: "a+" and "a-" (the scope of runner a begins and ends), "a!" (enqueue),
// "a." (synchronize), and whatever a test adds.
using Journal = std::vector<std::string>;

inline void spin(int64_t duration_ns) {
  for (const int64_t end = now_ns() + duration_ns; now_ns() < end;) {
  }
}

class FakeRunner final : public Runner {
 public:
  // `body` is called with the number of the call, from 0, warm-up included.
  using Body = std::function<void(int call)>;

  explicit FakeRunner(std::string name, Journal* journal = nullptr, Body body = {})
      : name_(std::move(name)), journal_(journal), body_(std::move(body)) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  [[nodiscard]] std::unique_ptr<Scope> enter() override {
    if (on_enter) on_enter();
    return std::make_unique<FakeScope>(*this);
  }
  void prepare() override {
    if (on_prepare) on_prepare();
  }
  [[nodiscard]] bool needs_prepare() const override { return on_prepare != nullptr; }
  [[nodiscard]] int64_t count_rebuilds() override { return rebuilds; }
  void enqueue() override {
    note("!");
    if (body_) body_(calls_++);
  }
  void synchronize() override { note("."); }

  [[nodiscard]] bool is_inside() const { return inside_; }

  int64_t rebuilds = 0;              // a body that counts one up was rebuilt in that call
  std::function<void()> on_enter;    // may throw
  std::function<void()> on_prepare;  // a runner that has one also needs it

 private:
  class FakeScope final : public Scope {
   public:
    explicit FakeScope(FakeRunner& runner) : runner_(runner) {
      runner_.inside_ = true;
      runner_.note("+");
    }
    ~FakeScope() override {
      runner_.inside_ = false;
      runner_.note("-");
    }

   private:
    FakeRunner& runner_;
  };

  void note(const char* what) {
    if (journal_ != nullptr) journal_->push_back(name_ + what);
  }

  std::string name_;
  Journal* journal_;
  Body body_;
  int calls_ = 0;
  bool inside_ = false;
};

// A neighbour on `cpu` for as long as it lives: a thread that never sleeps.
class Neighbour {
 public:
  explicit Neighbour(int cpu)
      : thread_([this, cpu] {
          const AffinityScope pinned({cpu});
          while (!gone_) {
          }
        }) {}
  ~Neighbour() {
    gone_ = true;
    thread_.join();
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

 private:
  std::atomic<bool> gone_ = false;
  std::thread thread_;  // the last member: it reads the other
};

// Whether the kernel says how long a thread has waited for a CPU.
inline bool tells_waits() {
  std::ifstream file("/proc/self/schedstat");
  int64_t ran_ns = 0, waited_ns = 0;
  return static_cast<bool>(file >> ran_ns >> waited_ns);
}

}  // namespace ftax
