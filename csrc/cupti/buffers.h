// The memory that CUPTI writes its records into. It outlives every session, and nothing that CUPTI
// holds is ever freed.
//
// Note [Late buffers]
// CUPTI gives a buffer back when it likes, to whoever has registered callbacks by then. A buffer of
// ours may come back after its session has ended (its records are nobody's then) or go to
// torch.profiler (which ignores what it does not know), and torch.profiler's may come to us. So the
// pool lives as long as the process, a buffer that is out stays valid, and a buffer that is not
// ours is left alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace ftax::cupti {

// Room for about 20,000 kernels. CUPTI clears each buffer in the thread that launches, which takes
// longer the larger it is.
inline constexpr size_t kBufferBytes = size_t{4} << 20;

class BufferPool {
 public:
  static constexpr size_t kCapacity = 64;

  struct Filled {
    uint8_t* data = nullptr;  // nullptr: there is none
    size_t valid_bytes = 0;
  };

  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // From now on records are wanted.
  void open() noexcept;
  // No more; what came back unread is dropped, and memory that is not out is freed.
  void close() noexcept;

  // Called by CUPTI, on any thread. nullptr if all are out or there is no memory left: CUPTI then
  // drops records and counts them.
  [[nodiscard]] uint8_t* lend() noexcept;
  void take_back(uint8_t* data, size_t valid_bytes) noexcept;

  // A buffer that came back; the caller returns it with recycle().
  [[nodiscard]] Filled find_filled() noexcept;
  void recycle(const uint8_t* data) noexcept;

  // How many buffers came that ftax never lent, since open().
  [[nodiscard]] int count_foreign() noexcept;

 private:
  enum class State { kEmpty, kOut, kFilled };
  struct Slot {
    State state = State::kEmpty;
    uint8_t* data = nullptr;
    size_t valid_bytes = 0;
  };

  Slot* find(const uint8_t* data) noexcept;

  std::mutex mutex_;
  std::array<Slot, kCapacity> slots_{};
  bool open_ = false;
  int foreign_ = 0;
};

}  // namespace ftax::cupti
