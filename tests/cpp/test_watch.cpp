// The watch, in a process for each test: what it writes, and that it is done before the driver is.
// The driver ends in a handler that it registers when it is initialised, after it has loaded the
// watch.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/clock.h"
#include "fake_cupti.h"
#include "watch/activity_file.h"

extern "C" int InitializeInjection();

namespace ftax::watch {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int kCalledTooLate = 3;
size_t calls_until_driver_ended = 0;

struct Ended {
  int status = -1;
  int64_t end_ns = 0;
  std::vector<Record> records;

  [[nodiscard]] size_t count(Kind kind) const {
    size_t found = 0;
    for (const Record& record : records) found += record.kind == kind ? 1 : 0;
    return found;
  }
};

std::vector<Record> read_records(const fs::path& folder) {
  std::vector<Record> records;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".activity") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    Record record;
    while (file.read(reinterpret_cast<char*>(&record), sizeof record)) records.push_back(record);
  }
  return records;
}

void load_watch() {
  fake_cupti::reset();
  // Registered first, so it runs last.
  std::atexit([] {
    const bool is_late = fake_cupti::journal().size() != calls_until_driver_ended;
    _exit(is_late ? kCalledTooLate : EXIT_SUCCESS);
  });
  InitializeInjection();
}

void initialise_driver(std::chrono::milliseconds time) {
  std::this_thread::sleep_for(time);
  std::atexit([] { calls_until_driver_ended = fake_cupti::journal().size(); });
}

void launch_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    fake_cupti::launch("gemm", 1000);
    std::this_thread::sleep_for(1ms);
  }
}

// A process that runs ``body`` and exits.
Ended run(void (*body)(), std::chrono::milliseconds initialising = 0ms) {
  std::string made = (fs::temp_directory_path() / "ftax-watch-XXXXXX").string();
  const fs::path folder = mkdtemp(made.data());
  const pid_t child = fork();
  if (child == 0) {
    setenv("FTAX_CUPTI_LIBRARY", FTAX_FAKE_CUPTI, 1);
    setenv("FTAX_RUN_FOLDER", folder.c_str(), 1);
    load_watch();
    initialise_driver(initialising);
    body();
    std::exit(EXIT_SUCCESS);
  }
  Ended ended;
  int status = 0;
  waitpid(child, &status, 0);
  ended.end_ns = now_ns();
  if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  ended.records = read_records(folder);
  fs::remove_all(folder);
  return ended;
}

TEST(what_a_program_does_is_written_before_the_driver_ends) {
  const Ended ended = run([] { launch_for(700ms); });
  CHECK(ended.status == EXIT_SUCCESS);
  CHECK(ended.count(Kind::kKernel) > 50);
  CHECK(ended.count(Kind::kCall) > ended.count(Kind::kKernel));
  CHECK(ended.count(Kind::kPhase) == 2);
  CHECK(ended.records.back().kind == Kind::kPhase);
  CHECK(ended.records.back().symbol == static_cast<uint32_t>(Phase::kLaunches));
  CHECK(ended.end_ns - static_cast<int64_t>(ended.records.back().end_ns) < 200'000'000);
}

TEST(a_program_may_end_while_all_is_recorded_first) {
  const Ended ended = run([] { launch_for(350ms); });
  CHECK(ended.status == EXIT_SUCCESS);
  CHECK(ended.count(Kind::kKernel) > 50);
  CHECK(ended.count(Kind::kPhase) == 1);
}

TEST(a_driver_may_take_long_to_initialise) {
  for (const auto time : {300ms, 700ms}) {
    const Ended ended = run([] { launch_for(300ms); }, time);
    CHECK(ended.status == EXIT_SUCCESS);
  }
}

TEST(a_program_that_ends_at_once_has_nothing_to_write) {
  const Ended ended = run([] { launch_for(20ms); });
  CHECK(ended.status == EXIT_SUCCESS);
  CHECK(ended.records.empty());
}

TEST(a_program_that_gives_the_device_nothing_is_watched_too) {
  const Ended ended = run([] { std::this_thread::sleep_for(700ms); });
  CHECK(ended.count(Kind::kPhase) == 2);
  CHECK(ended.records.size() == 2);
}

TEST(a_fork_of_a_program_is_not_watched_and_ends) {
  const Ended ended = run([] {
    const pid_t fork_of_it = fork();
    if (fork_of_it == 0) {
      launch_for(300ms);
      std::exit(EXIT_SUCCESS);
    }
    int status = 0;
    waitpid(fork_of_it, &status, 0);
    if (WIFSIGNALED(status)) _exit(EXIT_FAILURE);
  });
  CHECK(ended.count(Kind::kKernel) == 0);
}

}  // namespace
}  // namespace ftax::watch
