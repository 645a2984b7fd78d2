// Slots in a fixed array, so that no callback of CUPTI has to allocate anything but the buffer.
#include "cupti/buffers.h"

#include <cstdlib>

namespace ftax::cupti {
namespace {

constexpr size_t kAlignment = 64;  // CUPTI asks for 8

}  // namespace

void BufferPool::open() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = true;
  foreign_ = 0;
}

void BufferPool::close() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = false;
  for (Slot& slot : slots_) {
    if (slot.state == State::kOut) continue;
    std::free(slot.data);
    slot = {};
  }
}

uint8_t* BufferPool::lend() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.state != State::kEmpty) continue;
    if (slot.data == nullptr) {
      slot.data = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
    }
    if (slot.data != nullptr) slot.state = State::kOut;
    return slot.data;
  }
  return nullptr;
}

void BufferPool::take_back(uint8_t* data, size_t valid_bytes) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  Slot* slot = find(data);
  if (slot == nullptr || slot->state != State::kOut) {
    ++foreign_;
    return;
  }
  slot->state = open_ ? State::kFilled : State::kEmpty;
  slot->valid_bytes = valid_bytes;
}

BufferPool::Filled BufferPool::find_filled() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Slot& slot : slots_) {
    if (slot.state == State::kFilled) return {slot.data, slot.valid_bytes};
  }
  return {};
}

void BufferPool::recycle(const uint8_t* data) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Slot* slot = find(data)) slot->state = State::kEmpty;
}

int BufferPool::count_foreign() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return foreign_;
}

BufferPool::Slot* BufferPool::find(const uint8_t* data) noexcept {
  for (Slot& slot : slots_) {
    if (slot.data != nullptr && slot.data == data) return &slot;
  }
  return nullptr;
}

}  // namespace ftax::cupti
