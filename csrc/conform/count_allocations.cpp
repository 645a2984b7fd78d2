// A library to preload (LD_PRELOAD) that counts allocations between begin and end: how `ftax
// conform` sees that a CPU runtime allocates inside enqueue. The surprising choice: it replaces
// malloc itself, since every other way (statistics of the heap, hooks) misses memory that is given
// back before anyone looks. glibc keeps the real functions under other names.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)

}  // extern "C"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void note() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void ftax_begin_counting() {
  allocations.store(0);
  counting.store(true);
}

// All threads of the process count: a runtime may have its own.
__attribute__((visibility("default"))) int64_t ftax_end_counting() {
  counting.store(false);
  return allocations.load();
}

__attribute__((visibility("default"))) void* malloc(size_t bytes) {
  note();
  return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void* calloc(size_t count, size_t bytes) {
  note();
  return __libc_calloc(count, bytes);
}

__attribute__((visibility("default"))) void* realloc(void* memory, size_t bytes) {
  note();
  return __libc_realloc(memory, bytes);
}

__attribute__((visibility("default"))) void* memalign(size_t alignment, size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}

__attribute__((visibility("default"))) void* aligned_alloc(size_t alignment, size_t bytes) {
  return memalign(alignment, bytes);
}

__attribute__((visibility("default"))) int posix_memalign(void** memory, size_t alignment,
                                                          size_t bytes) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* found = memalign(alignment, bytes);
  if (found == nullptr) return ENOMEM;
  *memory = found;
  return 0;
}

}  // extern "C"
