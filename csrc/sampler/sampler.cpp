// A thread that samples the Python stacks of other processes, or of one thread of this one, and the
// C functions by which Python drives it. It has neither torch nor Python's interface and takes no
// lock of Python. Of other processes it only reads memory, which stops no thread of theirs.
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/quiet_thread.h"
#include "sampler/own_thread.h"
#include "sampler/stacks.h"

namespace ftax::sampler {
namespace {

constexpr size_t kMostSamples = 1 << 20;  // that wait to be handed over; more are counted as lost
// A program may make new code all the time, and meets new stacks for ever.
constexpr uint64_t kMostBytes = 1 << 22;
constexpr int64_t kKeepNs = 60'000'000'000;

class Sampler {
 public:
  explicit Sampler(int64_t period_ns) : period_ns_(period_ns) {
    thread_ = start_quiet_thread([this] { run(); });
  }

  ~Sampler() {
    stops_ = true;
    thread_.join();
  }

  int32_t add(pid_t pid, const Layout& layout, uint64_t runtime, uint64_t code_type) {
    const std::lock_guard lock(mutex_);
    processes_.push_back(std::make_unique<Stacks>(++last_index_, pid, layout, runtime, code_type));
    return last_index_;
  }

  // -1 where it cannot be (`OwnThread::start`).
  int32_t add_own(int32_t thread, const Layout& layout, uint64_t runtime, uint64_t code_type,
                  std::vector<Region> regions) {
    const std::lock_guard lock(mutex_);
    own_.reset();
    auto own = std::make_unique<OwnThread>(last_index_ + 1, thread, layout, runtime, code_type,
                                           std::move(regions));
    if (!own->start()) return -1;
    own_ = std::move(own);
    return ++last_index_;
  }

  News drain() {
    const std::lock_guard lock(mutex_);
    news_.forgotten = forgotten_;
    return std::exchange(news_, {});
  }

 private:
  // A program that fills the CPU on which this thread slept may go on for a tick (4 ms) before the
  // thread is let in, and is then always met in the same places. A short slice lets it in at once;
  // Linux before 6.12 takes no notice.
  static void ask_for_short_slices() {
    if (sched_getscheduler(0) != SCHED_OTHER) return;
    struct {  // as Linux has it; C libraries have only begun to
      uint32_t size, policy;
      uint64_t flags;
      int32_t nice;
      uint32_t priority;
      uint64_t slice_ns, deadline_ns, period_ns;
    } wanted{};
    wanted.size = sizeof(wanted);
    wanted.nice = getpriority(PRIO_PROCESS, 0);
    wanted.slice_ns = 100'000;
    syscall(SYS_sched_setattr, 0, &wanted, 0);
  }

  // At random times: what is done once a millisecond must not always be met in one place.
  void run() {
    ask_for_short_slices();
    std::mt19937_64 random{std::random_device{}()};
    std::uniform_real_distribution<double> share(0.5, 1.5);
    while (!stops_) {
      const auto wait = static_cast<int64_t>(share(random) * static_cast<double>(period_ns_));
      const timespec time{.tv_sec = wait / 1'000'000'000, .tv_nsec = wait % 1'000'000'000};
      nanosleep(&time, nullptr);
      const std::lock_guard lock(mutex_);
      if (news_.samples.size() > kMostSamples) {
        ++news_.lost;
        continue;
      }
      forget_old();
      std::erase_if(processes_, [&](auto& process) { return !process->take(numbers_, news_); });
      if (own_) own_->take(numbers_, news_);
    }
  }

  void forget_old() {
    const int64_t now = now_ns();
    if (numbers_.told_bytes < kMostBytes && now < forgot_ns_ + kKeepNs) return;
    for (const auto& process : processes_) process->forget();
    if (own_) own_->forget();
    numbers_.told_bytes = 0;
    forgotten_ = numbers_;
    forgot_ns_ = now;
  }

  int64_t period_ns_;
  std::atomic<bool> stops_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stacks>> processes_;
  std::unique_ptr<OwnThread> own_;
  int32_t last_index_ = -1;
  Numbers numbers_;
  Numbers forgotten_;
  int64_t forgot_ns_ = now_ns();
  News news_;
  std::thread thread_;
};

struct Handle {
  explicit Handle(int64_t period_ns) : sampler(period_ns) {}
  Sampler sampler;
  News taken;
};

}  // namespace
}  // namespace ftax::sampler

using ftax::sampler::Handle;

#define FTAX_EXPORT extern "C" __attribute__((visibility("default")))

struct FtaxNews {
  const void* samples;
  uint64_t sample_count;
  const uint32_t* stacks;
  uint64_t stack_words;
  const char* codes;
  uint64_t code_bytes;
  uint64_t torn;
  uint64_t lost;
  uint64_t forgotten_stacks;  // the last number that no further sample has
  uint64_t forgotten_codes;
};

FTAX_EXPORT void* ftax_sampler_start(int64_t period_ns) { return new Handle(period_ns); }

FTAX_EXPORT int32_t ftax_sampler_add(void* handle, int32_t pid, const ftax::sampler::Layout* layout,
                                     uint64_t runtime, uint64_t code_type) {
  return static_cast<Handle*>(handle)->sampler.add(pid, *layout, runtime, code_type);
}

FTAX_EXPORT int32_t ftax_sampler_add_own(void* handle, int32_t thread,
                                         const ftax::sampler::Layout* layout, uint64_t runtime,
                                         uint64_t code_type, const ftax::sampler::Region* regions,
                                         uint64_t count) {
  return static_cast<Handle*>(handle)->sampler.add_own(thread, *layout, runtime, code_type,
                                                       {regions, regions + count});
}

// What it gives is valid until the next call.
FTAX_EXPORT void ftax_sampler_drain(void* handle, FtaxNews* news) {
  auto& [sampler, taken] = *static_cast<Handle*>(handle);
  taken = sampler.drain();
  *news = {.samples = taken.samples.data(),
           .sample_count = taken.samples.size(),
           .stacks = taken.stacks.data(),
           .stack_words = taken.stacks.size(),
           .codes = taken.codes.data(),
           .code_bytes = taken.codes.size(),
           .torn = taken.torn,
           .lost = taken.lost,
           .forgotten_stacks = taken.forgotten.stacks,
           .forgotten_codes = taken.forgotten.codes};
}

FTAX_EXPORT void ftax_sampler_stop(void* handle) { delete static_cast<Handle*>(handle); }
