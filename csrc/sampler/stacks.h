// The Python stacks of one process, and the numbers by which they are handed on: each stack and
// each code object is described once, when it is first met, until all are forgotten.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sampler/layout.h"
#include "sampler/memory.h"

namespace ftax::sampler {

// As it is handed over: a C struct of 32 bytes, read by numpy.
struct Sample {
  int64_t time_ns;  // CLOCK_MONOTONIC, before its memory was read
  int32_t process;
  int32_t thread;  // its id in the system
  uint32_t stack;
  uint16_t opcode;  // at which the innermost frame stands, as it lies in memory
  uint8_t state;    // of the thread, as in /proc: 'R' runs, 'S' sleeps; 'G' waits for the GIL
  uint8_t region;   // whose machine code a thread of this process runs (own_thread.h), else 0; of
                    // another process 1 where the stack changed while it was read
  uint64_t took_ns;
};

// The last numbers that were given. Codes and stacks have numbers that all processes share.
struct Numbers {
  uint32_t codes = 0;
  uint32_t stacks = 0;
  uint64_t told_bytes = 0;  // in which what is known was described
};

// What is new since it was last handed over.
struct News {
  std::vector<Sample> samples;
  std::vector<uint32_t> stacks;  // number, count, then code and offset of each frame from innermost
  std::string codes;  // a line each: number, first line, then in hexadecimal file, name, line table
  uint64_t torn = 0;  // stacks that changed while they were read
  uint64_t lost = 0;  // times at which nothing was sampled, for want of room
  Numbers forgotten;  // no sample after these has numbers as low, or lower
};

class Stacks {
  static constexpr size_t kMostChunks = 128;

 public:
  Stacks(int32_t index, pid_t pid, const Layout& layout, uint64_t runtime, uint64_t code_type);
  ~Stacks();

  // Adds one sample of each thread; false if the process is gone.
  bool take(Numbers& numbers, News& news);

  // Of a thread of this process: where Python keeps its state; 0 where it runs no Python.
  uint64_t find_thread(int32_t id);

  // Finds the stack of the thread that calls it, which may be in a signal handler.
  bool walk_here(uint64_t thread);

  // Fills in what the stack that was found last is known by.
  bool number(Numbers& numbers, News& news, Sample& sample);

  // What was described is described again, with other numbers.
  void forget();

 private:
  struct Code {
    uint64_t filename, qualname, line_table;
    uint64_t bytes;  // of its instructions
    int32_t first_line;
    bool operator==(const Code&) const = default;
  };
  struct KnownCode {
    Code code;
    uint32_t number = 0;
  };
  struct Runs {
    uint64_t time_ns = 0;  // on a CPU
    uint64_t count = 0;    // how often it was given one; 0: the system does not tell
    bool operator==(const Runs&) const = default;
  };
  struct Thread {
    int state = -1;  // /proc/<pid>/task/<thread>/stat; lower: it cannot be opened
    int call = -1;   // /proc/<pid>/task/<thread>/syscall
    int runs = -1;   // /proc/<pid>/task/<thread>/schedstat
    bool seen = false;
    Runs last_runs;  // before `last` was taken
    Sample last{};   // without a stack: none that may be taken again
    void close_files() const;
  };
  // Where a frame stands, as addresses in the process.
  struct Place {
    uint64_t code, instruction;
    bool operator==(const Place&) const = default;
  };
  // Where the blocks of memory that a thread's frames lie in can be read.
  struct Chunk {
    uint64_t address = 0;
    const char* content = nullptr;
    size_t size = 0;
  };

  void take_thread(uint64_t thread, int32_t id, Numbers& numbers, News& news);
  bool copy_stack(uint64_t thread, uint64_t& frame);
  void copy_others(uint64_t address, size_t bytes);
  bool still_stands(uint64_t thread, uint64_t frame);
  bool walk(uint64_t frame);
  bool list_threads();
  bool lists_the_same();
  const char* find_frame(uint64_t address, std::array<char, 256>& own);
  bool number_codes(Numbers& numbers, News& news, uint16_t& opcode);
  bool describe(uint64_t address, const Code& code, uint32_t number, News& news);
  bool parse_code(const char* head, Code& code) const;
  bool read_text(uint64_t address, std::string& hex);
  Runs read_runs(int32_t id, Thread& thread) const;
  char read_state(int32_t id, Thread& thread) const;
  bool is_for_gil(const char* call) const;
  void forget_ended();

  int32_t index_;
  pid_t pid_;
  Layout layout_;
  uint64_t runtime_, code_type_;
  uint64_t interpreter_ = 0;  // whose threads are listed
  size_t thread_bytes_;       // of the state of a thread, as far as it is read
  Memory memory_;
  std::unordered_map<uint64_t, KnownCode> codes_;
  std::map<std::vector<uint64_t>, uint32_t> stacks_;
  std::unordered_map<int32_t, Thread> threads_;
  std::vector<std::pair<uint64_t, int32_t>> listed_;  // address of the state, and id, of threads
  std::vector<Chunk> chunks_;
  bool has_stood_ = false;     // whether the first was read while the innermost frame was one
  bool reads_beside_ = false;  // whether anything was read after it
  std::array<std::vector<char>, kMostChunks> copies_;  // of chunks of another process
  std::vector<Place> places_;  // of the stack that is being read, from the innermost frame
};

}  // namespace ftax::sampler
