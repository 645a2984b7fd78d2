// Drives a tape: eager execution hosted by C++. It shares the tape's weights and copies nothing.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "measure/runner.h"
#include "runners/device_sync.h"
#include "runners/grad_mode.h"
#include "tape/tape.h"

namespace ftax {

class TapeRunner final : public Runner {
 public:
  // The tape's inputs must be bound. It may not be used elsewhere while it is measured.
  TapeRunner(std::shared_ptr<Tape> tape, std::string name, c10::Device device, GradMode grad_mode)
      : tape_(std::move(tape)), name_(std::move(name)), sync_(device), grad_mode_(grad_mode) {}

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  [[nodiscard]] std::unique_ptr<Scope> enter() override {
    return std::make_unique<GradModeScope>(grad_mode_);
  }
  // Outputs die before it returns, as they do when a Python caller drops its result.
  void enqueue() override {
    tape_->run();
    tape_->release_outputs();
  }
  void synchronize() override { sync_(); }

 private:
  std::shared_ptr<Tape> tape_;
  std::string name_;
  DeviceSync sync_;
  GradMode grad_mode_;
};

}  // namespace ftax
