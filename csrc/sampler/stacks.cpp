#include "sampler/stacks.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

#include "core/clock.h"

namespace ftax::sampler {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kTag = 3;            // of a reference to code, from 3.14
constexpr uint32_t kVariableSize = 16;  // of an object that is as long as it says
constexpr size_t kMostThreads = 4096;
constexpr int kTries = 8;
constexpr size_t kMostFrames = 10'000;
constexpr size_t kMostChunk = 1 << 20;
constexpr int64_t kMostText = 4096;
constexpr int64_t kMostTable = 1 << 20;

template <typename Value>
Value read_at(const char* memory, uint32_t offset) {
  Value value;
  std::memcpy(&value, memory + offset, sizeof(Value));
  return value;
}

iovec make_piece(uint64_t address, size_t bytes) {
  return {reinterpret_cast<void*>(address), bytes};
}

void append_hex(std::string& text, const char* bytes, size_t count) {
  constexpr const char* kDigits = "0123456789abcdef";
  for (size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
}

using Text = std::array<char, 256>;

// A file of /proc that is opened once; empty where it cannot be read.
Text read_of_thread(pid_t pid, int32_t id, const char* name, int& file) {
  if (file == -1) {
    const std::string folder = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(id);
    file = open((folder + '/' + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) file = -2;
  }
  Text text{};
  if (file < 0 || pread(file, text.data(), text.size() - 1, 0) <= 0) return {};
  return text;
}

}  // namespace

Stacks::Stacks(int32_t index, pid_t pid, const Layout& layout, uint64_t runtime, uint64_t code_type)
    : index_(index),
      pid_(pid),
      layout_(layout),
      runtime_(runtime),
      code_type_(code_type),
      thread_bytes_(std::max({layout.thread_next, layout.thread_native_id, layout.thread_frame,
                              layout.thread_chunk + uint32_t{8}}) +
                    sizeof(uint64_t)),
      memory_(pid) {
  places_.reserve(kMostFrames);
  chunks_.reserve(kMostChunks);
}

Stacks::~Stacks() {
  for (const auto& [id, thread] : threads_) thread.close_files();
}

void Stacks::Thread::close_files() const {
  for (const int file : {state, call, runs}) {
    if (file >= 0) close(file);
  }
}

void Stacks::forget() {
  codes_.clear();
  stacks_.clear();
  for (auto& [id, thread] : threads_) thread.last.stack = 0;
}

bool Stacks::take(Numbers& numbers, News& news) {
  if (!list_threads()) return false;
  for (auto& [id, state] : threads_) state.seen = false;
  for (const auto& [thread, id] : listed_) take_thread(thread, id, numbers, news);
  forget_ended();
  return true;
}

uint64_t Stacks::find_thread(int32_t id) {
  if (!list_threads()) return 0;
  for (const auto& [thread, own] : listed_) {
    if (own == id) return thread;
  }
  return 0;
}

// False if the process is gone. There are none before Python has begun and after it has ended.
bool Stacks::list_threads() {
  if (lists_the_same()) return true;
  listed_.clear();
  interpreter_ = 0;
  uint64_t thread = 0;
  if (!memory_.read(runtime_ + layout_.runtime_interpreter, interpreter_)) return false;
  if (interpreter_ == 0) return true;
  if (!memory_.read(interpreter_ + layout_.interpreter_threads, thread)) return false;
  std::vector<char> head(thread_bytes_);
  for (size_t count = 0; thread != 0 && count < kMostThreads; ++count) {
    if (!memory_.read(thread, head.data(), head.size())) return count > 0;
    const auto id = static_cast<int32_t>(read_at<uint64_t>(head.data(), layout_.thread_native_id));
    if (id != 0) listed_.emplace_back(thread, id);
    thread = read_at<uint64_t>(head.data(), layout_.thread_next);
  }
  return true;
}

// Whether the threads are those that were listed last, by one read.
bool Stacks::lists_the_same() {
  if (interpreter_ == 0 || listed_.empty()) return false;
  uint64_t interpreter = 0;
  uint64_t next = 0;
  std::vector<char> heads(thread_bytes_ * listed_.size());
  std::vector<iovec> to{{&interpreter, sizeof interpreter}, {&next, sizeof next}};
  std::vector<iovec> from{make_piece(runtime_ + layout_.runtime_interpreter, sizeof interpreter),
                          make_piece(interpreter_ + layout_.interpreter_threads, sizeof next)};
  for (size_t i = 0; i < listed_.size(); ++i) {
    to.push_back({heads.data() + (i * thread_bytes_), thread_bytes_});
    from.push_back(make_piece(listed_[i].first, thread_bytes_));
  }
  if (!memory_.read_many(to, from) || interpreter != interpreter_) return false;
  for (size_t i = 0; i < listed_.size(); ++i) {
    const char* head = heads.data() + (i * thread_bytes_);
    const auto id = static_cast<int32_t>(read_at<uint64_t>(head, layout_.thread_native_id));
    if (listed_[i] != std::pair{next, id}) return false;
    next = read_at<uint64_t>(head, layout_.thread_next);
  }
  return next == 0;
}

// The program runs on while it is read, so a reading may mix two moments. It counts if the
// innermost frame is the same before and after. Else a second one follows, and what both have in
// common, from the outermost frame, counts; so does the frame below that if it is of the same
// function in both, and has only gone on. A thread that slept at its last sample and has had no CPU
// since stands where it stood: most threads of a program wait all the time, and reading them costs
// as much as reading one that runs.
void Stacks::take_thread(uint64_t thread, int32_t id, Numbers& numbers, News& news) {
  Thread& state = threads_[id];
  state.seen = true;
  const int64_t since = now_ns();
  const Runs runs = read_runs(id, state);
  if (runs.count != 0 && runs == state.last_runs && state.last.stack != 0) {
    Sample sample = state.last;
    sample.time_ns = since;
    sample.took_ns = static_cast<uint64_t>(now_ns() - since);
    news.samples.push_back(sample);
    return;
  }
  state.last.stack = 0;
  for (int tries = 0; tries < kTries; ++tries) {
    const int64_t begin = now_ns();
    const char letter = read_state(id, state);
    uint64_t frame = 0;
    if (!copy_stack(thread, frame)) continue;
    if (frame == 0) return;  // it is in no Python
    if (!walk(frame)) continue;
    bool has_changed = !has_stood_ || (reads_beside_ && !still_stands(thread, frame));
    if (has_changed) {
      const std::vector<Place> first = places_;
      if (!copy_stack(thread, frame)) continue;
      if (frame == 0) return;
      if (!walk(frame)) continue;
      auto [end, other] =
          std::mismatch(places_.rbegin(), places_.rend(), first.rbegin(), first.rend());
      has_changed = end != places_.rend() || other != first.rend();
      if (end != places_.rend() && other != first.rend() && end->code == other->code) ++end;
      if (end == places_.rbegin()) continue;
      places_.erase(places_.begin(), end.base());
    }
    Sample sample{.time_ns = begin,
                  .process = index_,
                  .thread = id,
                  .stack = 0,
                  .opcode = 0,
                  .state = static_cast<uint8_t>(letter),
                  .region = static_cast<uint8_t>(has_changed),
                  .took_ns = 0};
    if (!number(numbers, news, sample)) continue;
    sample.took_ns = static_cast<uint64_t>(now_ns() - begin);
    news.samples.push_back(sample);
    if (std::strchr("SDG", letter) != nullptr && !has_changed) {
      state.last = sample;
      state.last_runs = runs;
    }
    return;
  }
  ++news.torn;
}

// Whether a thread's innermost frame is the one that was read, and of the same function.
bool Stacks::still_stands(uint64_t thread, uint64_t frame) {
  uint64_t now = 0;
  if (!memory_.read(thread + layout_.thread_frame, now)) return false;
  if (layout_.cframe_frame >= 0 &&
      !memory_.read(now + static_cast<uint64_t>(layout_.cframe_frame), now)) {
    return false;
  }
  uint64_t code = 0;
  return now == frame && memory_.read(now + layout_.frame_code, code) &&
         (code & ~kTag) == places_.front().code;
}

// Collects the code and the instruction of each frame, from the innermost. What was read of a stack
// that changes may be a circle.
bool Stacks::walk(uint64_t frame) {
  constexpr int8_t kOwnedByGenerator = 1;
  std::array<char, 256> own{};
  places_.clear();
  int8_t owner = 0;
  uint64_t met = 0;  // at a depth that is a power of two
  for (size_t depth = 0; frame != 0; ++depth) {
    if (depth == kMostFrames || frame == met) return false;
    if ((depth & (depth + 1)) == 0) met = frame;
    const char* found = find_frame(frame, own);
    if (found == nullptr) return false;
    owner = read_at<int8_t>(found, layout_.frame_owner);
    if (layout_.owned_by_c < 0 || owner < layout_.owned_by_c) {
      reads_beside_ = reads_beside_ || found == own.data();
      places_.push_back({.code = read_at<uint64_t>(found, layout_.frame_code) & ~kTag,
                         .instruction = read_at<uint64_t>(found, layout_.frame_instruction)});
    }
    frame = read_at<uint64_t>(found, layout_.frame_previous);
  }
  // A generator has a caller; without one it has just ended.
  return !places_.empty() && owner != kOwnedByGenerator;
}

bool Stacks::number(Numbers& numbers, News& news, Sample& sample) {
  if (!number_codes(numbers, news, sample.opcode)) return false;
  std::vector<uint64_t> key;
  key.reserve(places_.size());
  for (const Place& place : places_) {
    const uint64_t offset = place.instruction - (place.code + layout_.code_bytes);
    const KnownCode& known = codes_.at(place.code);
    if (offset >= known.code.bytes) return false;  // of another moment than its code
    key.push_back(uint64_t{known.number} << 32U | offset);
  }
  auto [found, is_new] = stacks_.try_emplace(std::move(key), 0);
  if (is_new) {
    found->second = ++numbers.stacks;
    numbers.told_bytes += sizeof(uint64_t) * (found->first.size() + 1);
    news.stacks.push_back(found->second);
    news.stacks.push_back(static_cast<uint32_t>(found->first.size()));
    for (const uint64_t item : found->first) {
      news.stacks.push_back(static_cast<uint32_t>(item >> 32U));
      news.stacks.push_back(static_cast<uint32_t>(item));
    }
  }
  sample.stack = found->second;
  return true;
}

// Its innermost frame, and its blocks of memory, each in one read so that frames that belong
// together are of one moment; whether the innermost frame is the same at the end of the first.
// A thread that is gone has no frame. False if a block is gone.
bool Stacks::copy_stack(uint64_t thread, uint64_t& frame) {
  std::vector<char> head(thread_bytes_);
  chunks_.clear();
  frame = 0;
  if (!memory_.read(thread, head.data(), head.size())) return true;
  frame = read_at<uint64_t>(head.data(), layout_.thread_frame);
  if (frame == 0) return true;
  const auto address = read_at<uint64_t>(head.data(), layout_.thread_chunk);
  const auto top = read_at<uint64_t>(head.data(), layout_.thread_chunk + 8);
  // A call may be made before it is copied: all of the last page.
  const size_t bytes = top > address ? ((top | (kPage - 1)) + 1) - address : 0;
  const bool has_chunk = address != 0 && bytes >= sizeof(ChunkHead) && bytes <= kMostChunk;
  const uint64_t points_at = layout_.cframe_frame >= 0
                                 ? frame + static_cast<uint64_t>(layout_.cframe_frame)
                                 : thread + layout_.thread_frame;
  std::vector<iovec> to{{&frame, sizeof frame}};
  std::vector<iovec> from{make_piece(points_at, sizeof frame)};
  if (has_chunk) {
    copies_[0].resize(bytes);
    from.push_back(make_piece(address, bytes));
    to.push_back({copies_[0].data(), bytes});
  }
  uint64_t again = 0;
  from.push_back(make_piece(points_at, sizeof again));
  to.push_back({&again, sizeof again});
  if (!memory_.read_many(to, from)) return false;
  has_stood_ = again == frame;
  reads_beside_ = false;
  if (has_chunk) copy_others(address, bytes);
  return true;
}

// The blocks before the first, which is there.
void Stacks::copy_others(uint64_t address, size_t bytes) {
  for (size_t count = 0;; ++count) {
    std::vector<char>& copy = copies_[count];
    chunks_.push_back({.address = address, .content = copy.data(), .size = bytes});
    ChunkHead head{};
    std::memcpy(&head, copy.data(), sizeof(head));
    address = head.previous;
    if (address == 0 || count + 1 == kMostChunks) return;
    reads_beside_ = true;
    if (!memory_.read(address, head)) return;
    bytes = sizeof(ChunkHead) + (head.top * sizeof(uint64_t));
    if (bytes < sizeof(ChunkHead) || bytes > kMostChunk) return;
    copies_[count + 1].resize(bytes);
    if (!memory_.read(address, copies_[count + 1].data(), bytes)) return;
  }
}

// Nothing is copied, and what is read lies in blocks that are there: a frame that is only being
// made may point anywhere.
bool Stacks::walk_here(uint64_t thread) {
  const auto* state = reinterpret_cast<const char*>(thread);
  chunks_.clear();
  auto address = read_at<uint64_t>(state, layout_.thread_chunk);
  while (address != 0 && chunks_.size() < kMostChunks) {
    const auto* content = reinterpret_cast<const char*>(address);
    ChunkHead head{};
    std::memcpy(&head, content, sizeof(head));
    chunks_.push_back({.address = address, .content = content, .size = head.size});
    address = head.previous;
  }
  auto frame = read_at<uint64_t>(state, layout_.thread_frame);
  if (layout_.cframe_frame >= 0) {
    const auto* cframe = reinterpret_cast<const char*>(frame);
    frame = read_at<uint64_t>(cframe, static_cast<uint32_t>(layout_.cframe_frame));
  }
  return frame != 0 && walk(frame);
}

// In a block, else read into `own` (frames of generators lie elsewhere).
const char* Stacks::find_frame(uint64_t address, std::array<char, 256>& own) {
  const size_t size = layout_.frame_size;
  for (const Chunk& chunk : chunks_) {
    // What was read of a stack that changes may be any number, so no sum is made with it.
    if (address >= chunk.address && chunk.size >= size &&
        address - chunk.address <= chunk.size - size) {
      return chunk.content + (address - chunk.address);
    }
  }
  return size <= own.size() && memory_.read(address, own.data(), size) ? own.data() : nullptr;
}

// Code objects die and their addresses come back, so a name is looked up by its address together
// with what lies there. The opcode is that of the innermost frame.
bool Stacks::number_codes(Numbers& numbers, News& news, uint16_t& opcode) {
  const size_t size = layout_.code_bytes;
  std::vector<char> heads(size * places_.size());
  std::vector<iovec> to{{&opcode, sizeof opcode}};
  std::vector<iovec> from{make_piece(places_[0].instruction, sizeof opcode)};
  for (size_t i = 0; i < places_.size(); ++i) {
    to.push_back({heads.data() + (i * size), size});
    from.push_back(make_piece(places_[i].code, size));
  }
  if (!memory_.read_many(to, from)) return false;
  for (size_t i = 0; i < places_.size(); ++i) {
    Code code{};
    if (!parse_code(heads.data() + (i * size), code)) return false;
    const auto known = codes_.find(places_[i].code);
    if (known != codes_.end() && known->second.code == code) continue;
    const uint32_t number = numbers.codes + 1;
    const size_t before = news.codes.size();
    if (!describe(places_[i].code, code, number, news)) return false;
    codes_[places_[i].code] = {.code = code, .number = number};
    numbers.codes = number;
    numbers.told_bytes += news.codes.size() - before;
  }
  return true;
}

// What is free has the address of the next free block where its count of references was. That is
// of 32 bits, and 3.14 has flags in the highest 16.
bool Stacks::parse_code(const char* head, Code& code) const {
  const auto references = read_at<uint64_t>(head, 0) & 0xFFFF'FFFF'FFFF;
  code = {.filename = read_at<uint64_t>(head, layout_.code_filename),
          .qualname = read_at<uint64_t>(head, layout_.code_qualname),
          .line_table = read_at<uint64_t>(head, layout_.code_line_table),
          .bytes = 2 * read_at<uint64_t>(head, kVariableSize),
          .first_line = read_at<int32_t>(head, layout_.code_first_line)};
  return references > 0 && references < (uint64_t{1} << 32U) &&
         read_at<uint64_t>(head, layout_.object_type) == code_type_;
}

bool Stacks::describe(uint64_t address, const Code& code, uint32_t number, News& news) {
  std::string line = std::to_string(number) + ' ' + std::to_string(code.first_line) + ' ';
  if (!read_text(code.filename, line)) return false;
  line += ' ';
  if (!read_text(code.qualname, line)) return false;
  line += ' ';
  int64_t size = 0;
  if (!memory_.read(code.line_table + layout_.bytes_size, size) || size < 0 || size > kMostTable) {
    return false;
  }
  std::vector<char> table(static_cast<size_t>(size));
  if (size > 0 && !memory_.read(code.line_table + layout_.bytes_data, table.data(), table.size())) {
    return false;
  }
  append_hex(line, table.data(), table.size());
  // All of it may have been freed meanwhile, and be something else.
  std::vector<char> head(layout_.code_bytes);
  Code again{};
  if (!memory_.read(address, head.data(), head.size()) || !parse_code(head.data(), again) ||
      again != code) {
    return false;
  }
  news.codes += line + '\n';
  return true;
}

// The bytes of a character, ':', and the characters in hexadecimal.
bool Stacks::read_text(uint64_t address, std::string& hex) {
  int64_t length = 0;
  uint32_t state = 0;
  if (!memory_.read(address + layout_.text_length, length) ||
      !memory_.read(address + layout_.text_state, state) || length < 0 || length > kMostText) {
    return false;
  }
  const uint32_t width = state >> 2U & 7U;
  const bool is_compact = (state >> 5U & 1U) != 0;
  const bool is_ascii = (state >> 6U & 1U) != 0;
  if (!is_compact || (width != 1 && width != 2 && width != 4)) return false;
  std::vector<char> bytes(static_cast<size_t>(length) * width);
  const uint64_t data = address + (is_ascii ? layout_.text_ascii : layout_.text_compact);
  if (!bytes.empty() && !memory_.read(data, bytes.data(), bytes.size())) return false;
  hex += std::to_string(width) + ':';
  append_hex(hex, bytes.data(), bytes.size());
  return true;
}

// A thread that is woken just before it sleeps goes on without being given a CPU: its time grows.
Stacks::Runs Stacks::read_runs(int32_t id, Thread& thread) const {
  const Text text = read_of_thread(pid_, id, "schedstat", thread.runs);
  char* end = nullptr;
  const uint64_t time_ns = std::strtoull(text.data(), &end, 10);
  std::strtoull(end, &end, 10);  // how long it waited for one
  return {.time_ns = time_ns, .count = std::strtoull(end, nullptr, 10)};
}

// '?' where it is not known. The call that a thread is in is asked for only where it sleeps: for
// one that is about to, as in a page fault, the system waits for some milliseconds.
char Stacks::read_state(int32_t id, Thread& thread) const {
  const Text text = read_of_thread(pid_, id, "stat", thread.state);
  const char* end = std::strrchr(text.data(), ')');  // of its name, which may hold anything
  const char letter = end != nullptr && end[1] != '\0' && end[2] != '\0' ? end[2] : '?';
  if (letter != 'S') return letter;
  const Text call = read_of_thread(pid_, id, "syscall", thread.call);
  if (std::string_view(call.data()).starts_with("running")) return 'R';
  return is_for_gil(call.data()) ? 'G' : letter;
}

// Whether a call sleeps in a futex that lies in Python's own state, as only its lock does: other
// locks of Python are allocated.
bool Stacks::is_for_gil(const char* call) const {
  constexpr uint64_t kMostRuntime = 1 << 20;
  char* end = nullptr;
  if (std::strtol(call, &end, 10) != SYS_futex || *end != ' ') return false;
  const uint64_t address = std::strtoull(end, nullptr, 16);
  return address >= runtime_ && address - runtime_ < kMostRuntime;
}

void Stacks::forget_ended() {
  std::erase_if(threads_, [](auto& item) {
    if (item.second.seen) return false;
    item.second.close_files();
    return true;
  });
}

}  // namespace ftax::sampler
