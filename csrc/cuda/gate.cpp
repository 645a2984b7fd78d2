// The watchdog makes no CUDA call: it stores a word. A thread that is blocked in a launch, because
// the queue is full, holds the driver's locks, and a call from the watchdog would wait for them.
#include "cuda/gate.h"

#include <atomic>

#include "core/error.h"

namespace ftax::cuda {
namespace {

// The words are shared with the device, which knows no std::atomic.
std::atomic_ref<uint32_t> atomic(uint32_t& word) { return std::atomic_ref<uint32_t>(word); }

UniquePinned<GateWords> allocate_words() {
  require_device();
  void* words = nullptr;
  check(cudaHostAlloc(&words, sizeof(GateWords), cudaHostAllocMapped), "cudaHostAlloc");
  return UniquePinned<GateWords>(new (words) GateWords{});
}

}  // namespace

Gate::Gate(int64_t watchdog_ns) : watchdog_ns_(watchdog_ns), words_(allocate_words()) {
  void* device_words = nullptr;
  check(cudaHostGetDevicePointer(&device_words, words_.get(), 0), "cudaHostGetDevicePointer");
  device_words_ = static_cast<GateWords*>(device_words);
}

Gate::~Gate() { static_cast<void>(finish()); }

void Gate::close(cudaStream_t stream) {
  check(finish(), "waiting for the device to pass a gate");
  atomic(words_->gave_up).store(0);
  atomic(words_->opened).store(kClosed);
  // Before the launch, which waits for the kernel's end where launches are made to block.
  watchdog_.emplace(watchdog_ns_, [this] { open_as(kOpenedByWatchdog); });
  stream_ = stream;
  const auto limit_ns = 2 * static_cast<uint64_t>(watchdog_ns_);
  const cudaError_t code = launch_gate_kernel(device_words_, limit_ns, stream);
  if (code == cudaSuccess) return;
  open();
  check(code, "launching the gate");
}

void Gate::open() noexcept { open_as(kOpenedByCaller); }

bool Gate::was_cut() const noexcept {
  return atomic(words_->opened).load() == kOpenedByWatchdog || atomic(words_->gave_up).load() != 0;
}

void Gate::open_as(State state) noexcept {
  uint32_t expected = kClosed;  // whoever comes second changes nothing, so the first is known
  atomic(words_->opened).compare_exchange_strong(expected, state);
}

cudaError_t Gate::finish() noexcept {
  open();
  watchdog_.reset();
  if (!stream_.has_value()) return cudaSuccess;
  const cudaStream_t stream = *stream_;
  stream_.reset();
  return cudaStreamSynchronize(stream);
}

}  // namespace ftax::cuda
