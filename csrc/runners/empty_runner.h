// A runner that does nothing: the floor of the timed loop.
#pragma once

#include <string>

#include "measure/runner.h"

namespace ftax {

class EmptyRunner final : public Runner {
 public:
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  void enqueue() override {}

 private:
  std::string name_ = "empty";
};

}  // namespace ftax
