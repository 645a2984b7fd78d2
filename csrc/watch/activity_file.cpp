#include "watch/activity_file.h"

#include <fcntl.h>
#include <unistd.h>

namespace ftax::watch {
namespace {

int make(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
}

void write_all(int file, const void* bytes, size_t count) {
  const char* next = static_cast<const char*>(bytes);
  while (file >= 0 && count > 0) {
    const ssize_t written = write(file, next, count);
    if (written <= 0) return;  // the disk is full: `ftax run` sees that the file stands still
    next += written;
    count -= static_cast<size_t>(written);
  }
}

}  // namespace

bool ActivityFile::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  records_ = make(path + ".activity");
  names_ = make(path + ".names");
  return records_ >= 0 && names_ >= 0;
}

void ActivityFile::append(const std::vector<Record>& records) {
  const std::lock_guard lock(mutex_);
  write_all(records_, records.data(), records.size() * sizeof(Record));
}

uint32_t ActivityFile::number(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = numbers_.try_emplace(name, numbers_.size() + 1);
  if (is_new) {
    const std::string line = std::to_string(found->second) + ' ' + name + '\n';
    write_all(names_, line.data(), line.size());
  }
  return found->second;
}

}  // namespace ftax::watch
