// Drives a runtime that somebody else wrote. It is handed its stream once: the one that all runners
// of a ladder share, by its raw address, since a library knows nothing of torch. On a GPU it waits
// for the thread's current stream, as every other runner does, and not by the library's own
// synchronize, which would be a wait of another length in each library. So the stream that it is
// handed has to be the one that the runner is driven on.
#pragma once

#include <c10/core/DeviceGuard.h>

#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "measure/runner.h"
#include "runners/device_sync.h"
#include "runners/plugin.h"

namespace ftax {

class PluginRunner final : public Runner {
 public:
  // `memory_owner` keeps the tensors that are bound alive.
  PluginRunner(std::shared_ptr<Plugin> plugin, std::string name, c10::Device device, void* stream,
               std::shared_ptr<void> memory_owner)
      : memory_owner_(std::move(memory_owner)),
        plugin_(std::move(plugin)),
        name_(std::move(name)),
        sync_(device),
        stream_(stream) {
    if (plugin_ == nullptr) throw InvalidArgumentError("the plug-in is None; pass a Plugin");
  }

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] Host host() const override { return Host::kCpp; }
  [[nodiscard]] bool needs_gil() const override { return false; }
  [[nodiscard]] std::unique_ptr<Scope> enter() override {
    return std::make_unique<DeviceScope>(sync_.device());
  }
  // A library that has a prepare is one whose inference means something else without it.
  [[nodiscard]] bool needs_prepare() const override { return plugin_->has_prepare(); }
  void prepare() override {
    if (!plugin_->has_prepare()) return;
    plugin_->prepare(stream_);
    synchronize();
  }
  void enqueue() override { plugin_->enqueue(stream_); }
  void synchronize() override {
    if (sync_.device().is_cpu()) {
      plugin_->synchronize(stream_);
    } else {
      sync_();
    }
  }

 private:
  class DeviceScope final : public Scope {
   public:
    explicit DeviceScope(c10::Device device) : guard_(device) {}

   private:
    c10::DeviceGuard guard_;
  };

  std::shared_ptr<void> memory_owner_;  // destroyed after the plug-in that points into it
  std::shared_ptr<Plugin> plugin_;
  std::string name_;
  DeviceSync sync_;
  void* stream_;
};

}  // namespace ftax
