// Drives a runtime that somebody else wrote. It is handed its stream once: the one that all runners
// of a ladder share, by its raw address, since a library knows nothing of torch.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "measure/runner.h"
#include "runners/plugin.h"

namespace ftax {

class PluginRunner final : public Runner {
 public:
  // `memory_owner` keeps the tensors that are bound alive.
  PluginRunner(std::shared_ptr<Plugin> plugin, std::string name, void* stream,
               std::shared_ptr<void> memory_owner)
      : memory_owner_(std::move(memory_owner)),
        plugin_(std::move(plugin)),
        name_(std::move(name)),
        stream_(stream) {
    if (plugin_ == nullptr) throw InvalidArgumentError("the plug-in is None; pass a Plugin");
  }

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  void enqueue() override { plugin_->enqueue(stream_); }
  void synchronize() override { plugin_->synchronize(stream_); }

 private:
  std::shared_ptr<void> memory_owner_;  // destroyed after the plug-in that points into it
  std::shared_ptr<Plugin> plugin_;
  std::string name_;
  void* stream_;
};

}  // namespace ftax
