// The memory of another process, read while that process runs on. A read may come too late: what it
// asked for is gone, or is something else by now. So each one may fail, and what it brings has to
// be checked.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ftax::sampler {

class Memory {
 public:
  explicit Memory(pid_t pid) : pid_(pid) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Whether all of it was read.
  [[nodiscard]] bool read(uint64_t address, void* to, size_t bytes);

  // Several pieces in one system call; false unless all were read.
  [[nodiscard]] bool read_many(const std::vector<iovec>& to, const std::vector<iovec>& from);

  template <typename Value>
  [[nodiscard]] bool read(uint64_t address, Value& to) {
    return read(address, &to, sizeof(Value));
  }

 private:
  bool read_file(uint64_t address, void* to, size_t bytes);

  pid_t pid_;
  int file_ = -1;  // /proc/<pid>/mem, where the system call is not allowed
  bool calls_ = true;
};

}  // namespace ftax::sampler
