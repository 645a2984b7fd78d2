// Waits for a device through torch's own device interface, so that runners need no CUDA header and
// the CPU costs one predictable branch.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace ftax {

class DeviceSync {
 public:
  explicit DeviceSync(c10::Device device) : device_(device) {
    if (!device.is_cpu()) guard_ = c10::impl::getDeviceGuardImpl(device.type());
  }

  // Returns when the thread's current stream on the device is idle.
  void operator()() const {
    if (guard_ != nullptr) guard_->synchronizeStream(guard_->getStream(device_));
  }

  [[nodiscard]] c10::Device device() const { return device_; }

 private:
  c10::Device device_;
  const c10::impl::DeviceGuardImplInterface* guard_ = nullptr;
};

}  // namespace ftax
