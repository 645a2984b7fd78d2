// The second and the third number of /proc/self/task/<id>/schedstat. A sum of waits and their
// number bound how many were long: a request that a thread on a busy core makes in one go waits for
// nobody, however much the thread waits between such requests. The files stay open, because a look
// at each of a hundred threads has to be short against a round: 1 us to read, several to open.
#include "measure/thread_waits.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

namespace ftax {
namespace {

constexpr size_t kMostThreads = 256;  // a file each, of the 1,024 that a process often may open

std::optional<WaitTotals> read_totals(int file) {
  std::array<char, 96> text{};
  if (pread(file, text.data(), text.size() - 1, 0) <= 0) return std::nullopt;  // it has ended
  std::array<int64_t, 3> numbers{};  // ns on a CPU, ns of waiting for one, turns
  const char* next = text.data();
  const char* const end = next + text.size();
  for (int64_t& number : numbers) {
    while (next != end && *next == ' ') ++next;
    const auto [rest, problem] = std::from_chars(next, end, number);
    if (problem != std::errc()) return std::nullopt;
    next = rest;
  }
  return WaitTotals{numbers[1], numbers[2]};
}

}  // namespace

ThreadWaits::~ThreadWaits() {
  for (const auto& [id, thread] : threads_) close(thread.file);
}

void ThreadWaits::find_threads() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/task"), &closedir);
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder.get())) {
    const auto id = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (id <= 0 || threads_.contains(id) || threads_.size() >= kMostThreads) continue;
    const std::string path = "/proc/self/task/" + std::string(entry->d_name) + "/schedstat";
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    if (const auto totals = read_totals(file)) {
      threads_.emplace(id, Thread{file, *totals});
    } else {
      close(file);
    }
  }
}

Waits ThreadWaits::take(int64_t least_ns) {
  Waits waits;
  for (auto entry = threads_.begin(); entry != threads_.end();) {
    Thread& thread = entry->second;
    const auto totals = read_totals(thread.file);
    if (!totals) {
      close(thread.file);
      entry = threads_.erase(entry);
      continue;
    }
    const int64_t waited_ns = totals->waited_ns - thread.totals.waited_ns;
    const int64_t turns = totals->turns - thread.totals.turns;
    waits.count += std::min(turns, waited_ns / std::max<int64_t>(least_ns, 1));
    waits.time_ns += waited_ns;
    thread.totals = *totals;
    ++entry;
  }
  return waits;
}

int64_t ThreadWaits::read_time() const {
  int64_t time_ns = 0;
  for (const auto& [id, thread] : threads_) {
    const auto totals = read_totals(thread.file);
    if (totals) time_ns += totals->waited_ns - thread.totals.waited_ns;
  }
  return time_ns;
}

}  // namespace ftax
