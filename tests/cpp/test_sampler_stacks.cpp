// Stacks are read out of memory that changes while it is read, so any number may stand there. Here
// the memory is this process's, and Python's structs are made by hand.
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "sampler/stacks.h"

namespace ftax::sampler {
namespace {

// Offsets of the structs below; a layout like that of Python 3.13.
constexpr Layout kLayout{.runtime_interpreter = 0,
                         .interpreter_threads = 0,
                         .thread_next = 0,
                         .thread_frame = 8,
                         .cframe_frame = -1,
                         .thread_native_id = 16,
                         .thread_chunk = 24,
                         .frame_previous = 0,
                         .frame_code = 8,
                         .frame_instruction = 16,
                         .frame_owner = 24,
                         .frame_size = 32,
                         .owned_by_c = 3,
                         .object_type = 8,
                         .code_filename = 16,
                         .code_qualname = 24,
                         .code_first_line = 32,
                         .code_line_table = 40,
                         .code_bytes = 48,
                         .text_length = 0,
                         .text_state = 8,
                         .text_ascii = 16,
                         .text_compact = 16,
                         .bytes_size = 0,
                         .bytes_data = 8};

struct Text {
  int64_t length = 0;
  uint64_t state = 1U << 2U | 1U << 5U | 1U << 6U;  // a byte a character, compact, ASCII
  std::array<char, 16> characters{};
};

struct Table {
  int64_t size = 2;
  std::array<char, 8> bytes{1, 2};
};

struct Code {
  uint64_t references = 1;
  uint64_t type = 0;
  uint64_t filename = 0;
  uint64_t qualname = 0;
  int64_t first_line = 7;
  uint64_t line_table = 0;
  std::array<uint16_t, 8> bytecode{100, 101, 102, 103};
};

struct Frame {
  uint64_t previous = 0;
  uint64_t code = 0;
  uint64_t instruction = 0;
  uint64_t owner = 0;
};

template <typename Value>
uint64_t address_of(const Value& value) {
  return reinterpret_cast<uint64_t>(&value);
}

// A thread with `kDepth` frames, the innermost last, in one block of memory.
struct World {
  static constexpr size_t kDepth = 4;
  struct Block {
    ChunkHead head;
    std::array<Frame, kDepth> frames;
  };

  World() {
    set_text(file, "a.py");
    set_text(name, "f");
    code = {.type = address_of(type),
            .filename = address_of(file),
            .qualname = address_of(name),
            .line_table = address_of(table)};
    for (size_t i = 0; i < kDepth; ++i) {
      block.frames[i] = {.previous = i == 0 ? 0 : address_of(block.frames[i - 1]),
                         .code = address_of(code),
                         .instruction = address_of(code.bytecode) + (2 * i)};
    }
    block.head = {.previous = 0, .size = sizeof(Block), .top = 0};
    thread = {0, address_of(block.frames.back()), static_cast<uint64_t>(syscall(SYS_gettid)),
              address_of(block), address_of(block) + sizeof(Block)};
    interpreter = address_of(thread);
    runtime = address_of(interpreter);
  }

  static void set_text(Text& text, const std::string& characters) {
    text.length = static_cast<int64_t>(characters.size());
    std::memcpy(text.characters.data(), characters.data(), characters.size());
  }

  bool take() { return stacks.take(numbers, news); }

  uint64_t type = 0;
  Text file, name;
  Table table;
  Code code;
  Block block{};
  std::array<uint64_t, 5> thread{};
  uint64_t interpreter = 0;
  uint64_t runtime = 0;
  Numbers numbers;
  News news;
  Stacks stacks{0, getpid(), kLayout, address_of(runtime), address_of(type)};
};

TEST(a_stack_is_told_once_from_the_innermost_frame) {
  World world;
  CHECK(world.take());
  CHECK(world.take());
  CHECK(world.news.samples.size() == 2);
  CHECK(world.news.samples[0].stack == 1);
  CHECK(world.news.samples[1].stack == 1);
  CHECK(world.news.samples[0].opcode == 103);
  CHECK((world.news.stacks == std::vector<uint32_t>{1, 4, 1, 6, 1, 4, 1, 2, 1, 0}));
  CHECK(world.news.codes == "1 7 1:612e7079 1:66 0102\n");
  CHECK(world.news.torn == 0);
}

TEST(a_frame_of_c_is_left_out) {
  for (const uint64_t owner : {3U, 4U}) {  // 3.14 has two kinds
    World world;
    world.block.frames[2].owner = owner;
    CHECK(world.take());
    CHECK((world.news.stacks == std::vector<uint32_t>{1, 3, 1, 6, 1, 2, 1, 0}));
  }
}

TEST(references_of_3_14_have_a_tag) {
  World world;
  world.block.frames[1].code |= 1;
  world.code.references = 5U << 16U | uint64_t{1} << 48U;  // and what lives forever has a flag
  CHECK(world.take());
  CHECK((world.news.stacks == std::vector<uint32_t>{1, 4, 1, 6, 1, 4, 1, 2, 1, 0}));
  CHECK(world.news.codes == "1 7 1:612e7079 1:66 0102\n");
}

TEST(a_generator_without_a_caller_has_just_ended) {
  World world;
  world.block.frames[0].owner = 1;
  CHECK(world.take());
  CHECK(world.news.samples.empty());
  CHECK(world.news.torn == 1);
}

TEST(a_code_object_whose_memory_is_free_is_none) {
  World world;
  world.code.references = 0x7f0000001000;  // where the next free block is
  CHECK(world.take());
  CHECK(world.news.samples.empty());
  CHECK(world.news.codes.empty());
  CHECK(world.news.torn == 1);
}

TEST(a_new_function_at_the_same_address_has_a_number_for_itself) {
  World world;
  CHECK(world.take());
  Text other;
  World::set_text(other, "g");
  world.code.qualname = address_of(other);
  CHECK(world.take());
  CHECK(world.news.codes == "1 7 1:612e7079 1:66 0102\n2 7 1:612e7079 1:67 0102\n");
  CHECK(world.news.samples[1].stack == 2);
}

TEST(what_is_forgotten_is_told_again) {
  World world;
  CHECK(world.take());
  const uint64_t told_bytes = world.numbers.told_bytes;
  CHECK(told_bytes > 0);
  CHECK(world.take());
  CHECK(world.numbers.told_bytes == told_bytes);
  world.stacks.forget();
  CHECK(world.take());
  CHECK(world.news.codes == "1 7 1:612e7079 1:66 0102\n2 7 1:612e7079 1:66 0102\n");
  CHECK((world.news.stacks ==
         std::vector<uint32_t>{1, 4, 1, 6, 1, 4, 1, 2, 1, 0, 2, 4, 2, 6, 2, 4, 2, 2, 2, 0}));
  CHECK(world.news.samples[2].stack == 2);
  CHECK(world.numbers.told_bytes == 2 * told_bytes);
}

TEST(a_ring_of_frames_ends) {
  World world;
  world.block.frames[0].previous = address_of(world.block.frames[3]);
  CHECK(world.take());
  CHECK(world.news.torn == 1);
}

TEST(a_process_that_has_not_begun_has_no_stack) {
  World world;
  world.interpreter = 0;
  uint64_t none = 0;
  Stacks stacks{0, getpid(), kLayout, address_of(none), address_of(world.type)};
  CHECK(stacks.take(world.numbers, world.news));
  CHECK(world.news.samples.empty());
}

TEST(any_number_may_stand_anywhere) {
  std::mt19937_64 random(1);
  constexpr std::array<uint64_t, 6> kNumbers{0, 1, 8, ~uint64_t{0}, ~uint64_t{0} - 31, 0x7fff0000};
  World world;
  const auto words = sizeof(World::Block) / 8;
  for (int time = 0; time < 20'000; ++time) {
    World fresh;
    auto* target = reinterpret_cast<unsigned char*>(&fresh.block);
    size_t count = words;
    if (random() % 3 == 0) {
      target = reinterpret_cast<unsigned char*>(&fresh.code);
      count = sizeof(Code) / 8;
    } else if (random() % 3 == 0) {
      target = reinterpret_cast<unsigned char*>(&fresh.file);
      count = 2;
    } else if (random() % 3 == 0) {
      target = reinterpret_cast<unsigned char*>(fresh.thread.data()) + 8;  // it stays the last one
      count = 4;
    }
    const uint64_t near = address_of(fresh.block) + (random() % 256);
    const uint64_t number =
        random() % 3 == 0 ? near : (random() % 2 == 0 ? random() : kNumbers[random() % 6]);
    std::memcpy(target + (8 * (random() % count)), &number, 8);
    CHECK(fresh.take());
    CHECK(fresh.news.samples.size() <= 1);
  }
}

}  // namespace
}  // namespace ftax::sampler
