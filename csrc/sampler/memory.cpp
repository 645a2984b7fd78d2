#include "sampler/memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace ftax::sampler {

Memory::~Memory() {
  if (file_ >= 0) close(file_);
}

bool Memory::read(uint64_t address, void* to, size_t bytes) {
  if (calls_) {
    const iovec local{to, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t count = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    if (count == static_cast<ssize_t>(bytes)) return true;
    if (count >= 0 || (errno != EPERM && errno != ENOSYS)) return false;
    calls_ = false;  // a container's filter of system calls
  }
  return read_file(address, to, bytes);
}

bool Memory::read_many(const std::vector<iovec>& to, const std::vector<iovec>& from) {
  constexpr size_t kMost = 1024;  // IOV_MAX
  for (size_t begin = 0; calls_ && begin < to.size(); begin += kMost) {
    const size_t count = std::min(kMost, to.size() - begin);
    ssize_t bytes = 0;
    for (size_t i = begin; i < begin + count; ++i) bytes += static_cast<ssize_t>(to[i].iov_len);
    const ssize_t got = process_vm_readv(pid_, &to[begin], count, &from[begin], count, 0);
    if (got == bytes) continue;
    if (got >= 0 || (errno != EPERM && errno != ENOSYS)) return false;
    calls_ = false;
  }
  if (calls_) return true;
  for (size_t i = 0; i < to.size(); ++i) {
    const auto address = reinterpret_cast<uint64_t>(from[i].iov_base);
    if (!read_file(address, to[i].iov_base, to[i].iov_len)) return false;
  }
  return true;
}

bool Memory::read_file(uint64_t address, void* to, size_t bytes) {
  if (file_ < 0) {
    file_ = open(("/proc/" + std::to_string(pid_) + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) return false;
  }
  return pread(file_, to, bytes, static_cast<off_t>(address)) == static_cast<ssize_t>(bytes);
}

}  // namespace ftax::sampler
