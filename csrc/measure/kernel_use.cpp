#include "measure/kernel_use.h"

#include <sys/resource.h>

namespace ftax {

KernelUse read_kernel_use() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);  // which fails for no argument that is named in its manual
  constexpr int64_t kSecondNs = 1'000'000'000, kMicrosecondNs = 1'000;
  return {usage.ru_minflt + usage.ru_majflt,
          usage.ru_stime.tv_sec * kSecondNs + usage.ru_stime.tv_usec * kMicrosecondNs};
}

}  // namespace ftax
