// One thread of this process. What it does is read by a signal handler that runs in it, so that
// nothing changes meanwhile: functions that take a microsecond are met, and the instruction at
// which the thread stands tells whose machine code it runs. From outside neither can be had.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <vector>

#include "sampler/stacks.h"

namespace ftax::sampler {

// A C struct that is filled in by ctypes: where the machine code of a library lies.
struct Region {
  uint64_t begin, end;
  uint64_t number;  // above 0; what `Sample::region` holds for code in it
};

class OwnThread {
 public:
  OwnThread(int32_t index, int32_t thread, const Layout& layout, uint64_t runtime,
            uint64_t code_type, std::vector<Region> regions);
  ~OwnThread();

  // False where the thread runs no Python, or something else handles SIGPROF: the program, or
  // another of these.
  [[nodiscard]] bool start();

  // Adds the sample that was asked for the last time, if it has come, and then asks for the next.
  void take(Numbers& numbers, News& news);

  void forget() { stacks_.forget(); }

 private:
  static void handle(int signal, siginfo_t* info, void* context);
  void answer(const ucontext_t& context);
  uint8_t find_region(uint64_t instruction, uint64_t stack);
  [[nodiscard]] uint8_t get_region(uint64_t address) const;

  int32_t thread_;
  uint64_t state_ = 0;  // the address of Python's state of it
  Stacks stacks_;
  Memory memory_;
  std::vector<Region> regions_;
  std::vector<uint64_t> words_;  // of the machine's stack
  std::atomic<bool> is_asked_ = false;
  std::atomic<bool> has_answered_ = false;
  bool found_ = false;
  bool handles_ = false;
  Sample sample_{};
};

}  // namespace ftax::sampler
