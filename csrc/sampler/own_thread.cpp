#include "sampler/own_thread.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <utility>

#include "core/clock.h"

namespace ftax::sampler {
namespace {

constexpr size_t kWords = 512;
constexpr int kVotes = 5;

std::atomic<OwnThread*> current = nullptr;

struct Registers {
  uint64_t instruction, stack;
};

Registers get_registers(const ucontext_t& context) {
#if defined(__x86_64__)
  return {.instruction = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]),
          .stack = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RSP])};
#else
  return {.instruction = context.uc_mcontext.pc, .stack = context.uc_mcontext.sp};
#endif
}

}  // namespace

OwnThread::OwnThread(int32_t index, int32_t thread, const Layout& layout, uint64_t runtime,
                     uint64_t code_type, std::vector<Region> regions)
    : thread_(thread),
      stacks_(index, getpid(), layout, runtime, code_type),
      memory_(getpid()),
      regions_(std::move(regions)),
      words_(kWords) {
  std::ranges::sort(regions_, {}, &Region::begin);
  sample_.process = index;
  sample_.thread = thread;
  sample_.state = 'R';
}

bool OwnThread::start() {
  struct sigaction before{};
  sigaction(SIGPROF, nullptr, &before);
  const bool is_free = before.sa_handler == SIG_DFL || before.sa_sigaction == &handle;
  state_ = stacks_.find_thread(thread_);
  // Its first read opens what later ones need.
  if (state_ == 0 || !memory_.read(state_, words_[0]) || !is_free) return false;
  OwnThread* expected = nullptr;
  if (!current.compare_exchange_strong(expected, this)) return false;
  struct sigaction action{};
  action.sa_sigaction = &handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(SIGPROF, &action, nullptr);
  handles_ = true;
  return true;
}

// A signal that is still on its way would end the process if nothing handled it.
OwnThread::~OwnThread() {
  if (!handles_) return;
  if (!is_asked_ || has_answered_) std::signal(SIGPROF, SIG_DFL);
  current = nullptr;
}

// It waits for no answer, since each time that this thread wakes up may cost the other one its CPU.
void OwnThread::take(Numbers& numbers, News& news) {
  if (is_asked_) {
    if (!has_answered_) return;
    is_asked_ = false;
    if (found_ && stacks_.number(numbers, news, sample_)) {
      news.samples.push_back(sample_);
    } else {
      ++news.torn;
    }
  }
  has_answered_ = false;
  is_asked_ = true;
  if (syscall(SYS_tgkill, getpid(), thread_, SIGPROF) != 0) is_asked_ = false;
}

void OwnThread::handle(int /*signal*/, siginfo_t* /*info*/, void* context) {
  const int error = errno;
  OwnThread* asked = current;
  // Whoever sends the signal from elsewhere may meet another thread.
  if (asked != nullptr && asked->is_asked_ && !asked->has_answered_ &&
      syscall(SYS_gettid) == asked->thread_) {
    asked->answer(*static_cast<const ucontext_t*>(context));
  }
  errno = error;
}

// Calls nothing that takes memory or a lock: the thread may hold it.
void OwnThread::answer(const ucontext_t& context) {
  sample_.time_ns = now_ns();
  const Registers registers = get_registers(context);
  sample_.region = find_region(registers.instruction, registers.stack);
  found_ = stacks_.walk_here(state_);
  sample_.took_ns = static_cast<uint64_t>(now_ns() - sample_.time_ns);
  has_answered_ = true;
}

// Of code in no region (of the C library, say) that of most of the nearest callers that are in one:
// words on the stack that point there. Earlier calls have left some of them behind.
uint8_t OwnThread::find_region(uint64_t instruction, uint64_t stack) {
  if (const uint8_t number = get_region(instruction); number != 0) return number;
  if (!memory_.read(stack, words_.data(), words_.size() * sizeof(uint64_t))) return 0;
  std::array<uint8_t, 256> votes{};
  int count = 0;
  for (const uint64_t word : words_) {
    const uint8_t number = get_region(word);
    if (number == 0) continue;
    ++votes[number];
    if (++count == kVotes) break;
  }
  return static_cast<uint8_t>(std::ranges::max_element(votes) - votes.begin());
}

uint8_t OwnThread::get_region(uint64_t address) const {
  const auto next = std::ranges::upper_bound(regions_, address, {}, &Region::begin);
  if (next == regions_.begin()) return 0;
  const Region& region = *std::prev(next);
  return address < region.end ? static_cast<uint8_t>(region.number) : uint8_t{0};
}

}  // namespace ftax::sampler
