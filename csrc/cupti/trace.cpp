// The traced loop and the checks that its records can be believed. The clock is checked by what it
// stamped, not by asking CUPTI for the time, which says nothing of how the device's own times were
// converted.
#include "cupti/trace.h"

#include <algorithm>
#include <iterator>

#include "core/clock.h"
#include "core/error.h"
#include "cupti/session.h"

namespace ftax::cupti {
namespace {

// Device times are converted by interpolation, to within microseconds. A wrong clock is off by
// minutes.
constexpr int64_t kClockSlackNs = 1'000'000;
constexpr int kClockAttempts = 3;

struct Span {
  int64_t begin_ns;
  int64_t end_ns;
};

std::vector<CUpti_ActivityKind> parse_kinds(const std::vector<std::string>& kinds) {
  // Never KIND_KERNEL, which runs kernels one at a time; never GRAPH_TRACE, which hides the nodes.
  std::vector<CUpti_ActivityKind> result{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                                         CUPTI_ACTIVITY_KIND_MEMSET};
  for (const std::string& kind : kinds) {
    if (kind == "kernel") continue;
    CUpti_ActivityKind parsed;
    if (kind == "runtime") {
      parsed = CUPTI_ACTIVITY_KIND_RUNTIME;
    } else if (kind == "driver") {
      parsed = CUPTI_ACTIVITY_KIND_DRIVER;
    } else if (kind == "overhead") {
      parsed = CUPTI_ACTIVITY_KIND_OVERHEAD;
    } else {
      throw InvalidArgumentError("kinds: '" + kind +
                                 "' is unknown; use kernel, runtime, driver or overhead");
    }
    if (std::find(result.begin(), result.end(), parsed) == result.end()) result.push_back(parsed);
  }
  return result;
}

void check_count(const char* name, int value, int minimum) {
  if (value >= minimum) return;
  throw InvalidArgumentError(std::string(name) + " is " + std::to_string(value) + "; use " +
                             std::to_string(minimum) + " or more");
}

// Calls `visit(start_ns, end_ns)` for each record that the traced program made; overheads are not
// among them, since CUPTI leaves the times of some empty.
template <typename Visit>
void visit_times(const Activities& activities, Visit visit) {
  for (const auto& kernel : activities.kernels) visit(kernel.start_ns, kernel.end_ns);
  for (const auto& copy : activities.memcpys) visit(copy.start_ns, copy.end_ns);
  for (const auto& memset : activities.memsets) visit(memset.start_ns, memset.end_ns);
  for (const auto& call : activities.api_calls) visit(call.start_ns, call.end_ns);
}

bool has_times(int64_t start_ns, int64_t end_ns) {
  return start_ns != 0 && end_ns != 0 && start_ns <= end_ns;
}

int64_t count_untimed(const Activities& activities) {
  int64_t count = 0;
  visit_times(activities, [&](int64_t start_ns, int64_t end_ns) {
    if (!has_times(start_ns, end_ns)) ++count;
  });
  return count;
}

// Records with times at which there was no session.
int64_t count_misplaced(const Activities& activities, Span session) {
  int64_t count = 0;
  visit_times(activities, [&](int64_t start_ns, int64_t end_ns) {
    if (has_times(start_ns, end_ns) &&
        (start_ns < session.begin_ns - kClockSlackNs || end_ns > session.end_ns + kClockSlackNs)) {
      ++count;
    }
  });
  return count;
}

// Warms up and throws the records away. CUPTI converts device times between two readings of its
// clock, and the first of them may be older than our clock is (see Note [The clock]): repeated
// until the times make sense. The last iteration takes the new buffer that CUPTI needs after a
// flush, and which it clears in the thread that launches.
void settle(Session& session, Runner& runner, int warmup, int64_t begin_ns) {
  for (int attempt = 0; attempt < kClockAttempts; ++attempt) {
    for (int i = 0; i < std::max(warmup, 1); ++i) run_once(runner);
    const Collection collection = session.collect();
    if (count_misplaced(collection.activities, {begin_ns, now_ns()}) == 0) break;
  }
  run_once(runner);
}

std::vector<std::string> find_problems(const Collection& collection,
                                       const std::vector<CUpti_ActivityKind>& kinds, Span session) {
  const Activities& activities = collection.activities;
  std::vector<std::string> problems;
  const auto add = [&](int64_t count, const std::string& text) {
    if (count > 0) problems.push_back(std::to_string(count) + text);
  };
  add(count_misplaced(activities, session),
      " records lie outside the time of the trace: CUPTI stamped them with another clock");
  add(count_untimed(activities), " records have no times: CUPTI ran out of device memory for them");
  add(activities.unreadable_buffers, " buffers could not be read to their end");
  add(collection.foreign_buffers,
      " buffers of another profiler came to ftax: it runs in this process");
  for (const auto& [kind, count] : activities.records_by_kind) {
    if (std::find(kinds.begin(), kinds.end(), static_cast<CUpti_ActivityKind>(kind)) !=
        kinds.end()) {
      continue;
    }
    add(count, " records are of CUPTI's kind " + std::to_string(kind) +
                   ", which ftax did not ask for: another profiler runs in this process");
  }
  return problems;
}

// Keeps what ended after `begin_ns`, in the order in which it started. By its end: the last warm-up
// was waited for, so that its records end microseconds earlier, which is more than a start may be
// off.
template <typename Record>
void keep_after(int64_t begin_ns, std::vector<Record>& records) {
  std::erase_if(records, [&](const Record& record) { return record.end_ns <= begin_ns; });
  std::stable_sort(records.begin(), records.end(),
                   [](const Record& a, const Record& b) { return a.start_ns < b.start_ns; });
}

// Drops what lies between two iterations. Only for a runner that is prepared there: of any other it
// is work that outlived its iteration, and a reader has to see it.
template <typename Record>
void drop_between(const std::vector<Request>& iterations, std::vector<Record>& records) {
  std::erase_if(records, [&](const Record& record) {
    const auto next = std::lower_bound(
        iterations.begin(), iterations.end(), record.end_ns,
        [](const Request& request, int64_t end_ns) { return request.begin_ns < end_ns; });
    return next != iterations.begin() && next != iterations.end() &&
           std::prev(next)->end_ns <= record.start_ns;
  });
}

template <typename Visit>
void visit_lists(Activities& activities, Visit visit) {
  visit(activities.kernels);
  visit(activities.memcpys);
  visit(activities.memsets);
  visit(activities.api_calls);
}

}  // namespace

RawTrace trace_runner(const Library& library, Runner& runner, int iterations, int warmup,
                      const std::vector<std::string>& kinds) {
  check_count("iterations", iterations, 1);
  check_count("warmup", warmup, 0);
  const std::vector<CUpti_ActivityKind> enabled = parse_kinds(kinds);
  RawTrace trace;
  trace.cupti_file = library.path();
  trace.cupti_version = library.version();
  trace.iterations.reserve(static_cast<size_t>(iterations));

  const auto scope = runner.enter();
  const int64_t begin_ns = now_ns();
  Session session(library, enabled);
  settle(session, runner, warmup, begin_ns);
  for (int i = 0; i < iterations; ++i) trace.iterations.push_back(run_once(runner));
  session.stop();
  Collection collection = session.collect();

  trace.problems = find_problems(collection, enabled, {begin_ns, now_ns()});
  trace.dropped_records = collection.dropped_records;
  trace.buffers = collection.buffers;
  trace.activities = std::move(collection.activities);
  const int64_t first_ns = trace.iterations.front().begin_ns;
  visit_lists(trace.activities, [&](auto& records) {
    keep_after(first_ns, records);
    if (runner.needs_prepare()) drop_between(trace.iterations, records);
  });
  keep_after(first_ns, trace.activities.overheads);
  return trace;
}

}  // namespace ftax::cupti
