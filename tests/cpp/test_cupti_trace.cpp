// Traces of a runner that launches kernels on a CUPTI without a GPU: what is in a trace, and which
// faults of CUPTI make it say that it should not be believed.
#include <string>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "cupti/trace.h"
#include "fake_cupti.h"
#include "fake_runner.h"

namespace ftax::cupti {
namespace {

constexpr int64_t kUs = 1000;
using Kinds = std::vector<std::string>;

Library make_library() {
  fake_cupti::reset();
  return Library(FTAX_FAKE_CUPTI);
}

// Two kernels, which have ended by the time the request is issued.
void launch_two(int) {
  fake_cupti::launch("first", 2 * kUs);
  fake_cupti::launch("second", 3 * kUs);
  spin(20 * kUs);
}

bool contains(const std::vector<std::string>& texts, const std::string& fragment) {
  for (const std::string& text : texts) {
    if (text.find(fragment) != std::string::npos) return true;
  }
  return false;
}

TEST(each_iteration_holds_its_own_kernels_and_nothing_else_is_there) {
  const Library library = make_library();
  FakeRunner runner("a", nullptr, launch_two);
  const RawTrace trace = trace_runner(library, runner, 5, 3, {"kernel"});
  CHECK(trace.problems.empty());
  CHECK(trace.dropped_records == 0);
  CHECK(trace.buffers == 1);
  CHECK(trace.iterations.size() == 5);
  CHECK(trace.activities.kernels.size() == 10);
  CHECK(trace.activities.api_calls.empty());
  int64_t previous_end_ns = 0;
  for (size_t i = 0; i < trace.iterations.size(); ++i) {
    const Request& iteration = trace.iterations[i];
    CHECK(previous_end_ns <= iteration.begin_ns);
    CHECK(iteration.begin_ns < iteration.issued_ns && iteration.issued_ns <= iteration.end_ns);
    const KernelActivity& first = trace.activities.kernels.at(2 * i);
    const KernelActivity& second = trace.activities.kernels.at(2 * i + 1);
    CHECK(first.name == "first" && second.name == "second");
    CHECK(iteration.begin_ns <= first.start_ns);
    CHECK(first.end_ns - first.start_ns == 2 * kUs);
    CHECK(first.end_ns <= second.start_ns);
    CHECK(second.end_ns <= iteration.end_ns);
    previous_end_ns = iteration.end_ns;
  }
}

TEST(a_runner_is_prepared_before_each_iteration_and_that_is_not_in_the_trace) {
  const Library library = make_library();
  FakeRunner runner("a", nullptr, launch_two);
  int prepared = 0;
  runner.on_prepare = [&] {
    ++prepared;
    spin(10 * kUs);
    fake_cupti::launch("reset", 2 * kUs);
    spin(20 * kUs);
  };
  const RawTrace trace = trace_runner(library, runner, 3, 1, {"runtime"});
  CHECK(prepared == 5);  // one warm-up, one that takes the new buffer, three that count
  CHECK(trace.activities.kernels.size() == 6);
  CHECK(trace.activities.api_calls.size() == 6);
  for (const KernelActivity& kernel : trace.activities.kernels) CHECK(kernel.name != "reset");
}

TEST(a_trace_names_the_library_it_came_from) {
  const Library library = make_library();
  FakeRunner runner("a", nullptr, launch_two);
  const RawTrace trace = trace_runner(library, runner, 1, 0, {});
  CHECK(trace.cupti_file == FTAX_FAKE_CUPTI);
  CHECK(trace.cupti_version == 130000);
}

TEST(calls_are_recorded_if_asked_for) {
  const Library library = make_library();
  FakeRunner runner("a", nullptr, launch_two);
  const RawTrace trace = trace_runner(library, runner, 4, 1, {"runtime", "kernel", "runtime"});
  CHECK(trace.problems.empty());
  CHECK(trace.activities.kernels.size() == 8);
  CHECK(trace.activities.api_calls.size() == 8);
  CHECK(trace.activities.api_calls.at(0).name == "cudaLaunchKernel");
  CHECK(trace.activities.api_calls.at(0).correlation_id ==
        trace.activities.kernels.at(0).origin.correlation_id);
}

TEST(the_kinds_that_are_enabled_are_those_asked_for) {
  const Library library = make_library();
  std::vector<int> enabled;
  FakeRunner runner("a", nullptr, [&](int) { enabled = fake_cupti::enabled_kinds(); });
  static_cast<void>(trace_runner(library, runner, 1, 0, {"kernel"}));
  CHECK((enabled == std::vector<int>{1, 2, 10, 22}));  // copies, memsets, kernels, peer copies
  static_cast<void>(trace_runner(library, runner, 1, 0, {"driver", "overhead"}));
  CHECK((enabled == std::vector<int>{1, 2, 4, 10, 17, 22}));
}

TEST(the_records_are_collected_once_nothing_is_enabled_any_more) {
  const Library library = make_library();
  FakeRunner runner("a", nullptr, launch_two);
  static_cast<void>(trace_runner(library, runner, 1, 1, {}));
  CHECK((fake_cupti::journal() ==
         std::vector<std::string>{"callbacks", "clock", "+10", "+1", "+22", "+2",  // start
                                  "flush",                                         // settle
                                  "-2", "-22", "-1", "-10", "flush",               // the records
                                  "flush", "clock"}));                             // close
}

TEST(the_runner_is_entered_once_around_everything) {
  const Library library = make_library();
  Journal journal;
  FakeRunner runner("a", &journal);
  static_cast<void>(trace_runner(library, runner, 2, 1, {}));
  // One warm-up, one that takes the new buffer, two that count.
  CHECK((journal == Journal{"a+", "a!", "a.", "a!", "a.", "a!", "a.", "a!", "a.", "a-"}));
}

TEST(a_runner_that_throws_leaves_cupti_switched_off) {
  const Library library = make_library();
  for (const int failing_call : {0, 3}) {  // in the warm-up; while it counts
    FakeRunner runner("a", nullptr, [&](int call) {
      launch_two(call);
      if (call == failing_call) throw RunnerError("a raised on purpose");
    });
    CHECK_THROWS(trace_runner(library, runner, 5, 1, {"kernel"}), RunnerError, "on purpose");
    CHECK(fake_cupti::enabled_kinds().empty());
    CHECK(!runner.is_inside());
  }
  FakeRunner runner("b", nullptr, launch_two);
  CHECK(trace_runner(library, runner, 2, 1, {}).activities.kernels.size() == 4);
}

TEST(a_runner_that_cannot_be_entered_starts_nothing) {
  const Library library = make_library();
  FakeRunner runner("a");
  runner.on_enter = [] { throw RunnerError("no stream"); };
  CHECK_THROWS(trace_runner(library, runner, 1, 1, {}), RunnerError, "no stream");
  CHECK(fake_cupti::journal().empty());
}

TEST(an_argument_that_cannot_be_right_is_named) {
  const Library library = make_library();
  FakeRunner runner("a");
  CHECK_THROWS(trace_runner(library, runner, 0, 1, {}), InvalidArgumentError, "iterations is 0");
  CHECK_THROWS(trace_runner(library, runner, 1, -1, {}), InvalidArgumentError, "warmup is -1");
  CHECK_THROWS(trace_runner(library, runner, 1, 1, Kinds{"graph"}), InvalidArgumentError,
               "'graph' is unknown");
  CHECK(fake_cupti::journal().empty());
}

TEST(dropped_records_are_reported) {
  const Library library = make_library();
  FakeRunner runner("a", nullptr, [](int call) {
    fake_cupti::knobs().drop_kernels = call >= 4;  // one warm-up and one more come before
    launch_two(call);
  });
  const RawTrace trace = trace_runner(library, runner, 5, 1, {});
  CHECK(trace.dropped_records == 6);
  CHECK(trace.activities.kernels.size() == 4);
}

TEST(records_on_another_clock_are_a_problem) {
  for (const double factor : {0.5, 2.1}) {
    const Library library = make_library();
    fake_cupti::knobs().clock_factor = factor;
    FakeRunner runner("a", nullptr, launch_two);
    const RawTrace trace = trace_runner(library, runner, 5, 1, {});
    // The last warm-up's two kernels are misplaced as well.
    CHECK(contains(trace.problems, "12 records lie outside the time of the trace"));
  }
}

TEST(a_clock_that_takes_hold_during_the_warm_up_is_no_problem) {
  const Library library = make_library();
  fake_cupti::knobs().clock_factor = 2.1;
  fake_cupti::knobs().wrong_clock_flushes = 2;
  FakeRunner runner("a", nullptr, launch_two);
  const RawTrace trace = trace_runner(library, runner, 5, 1, {});
  CHECK(trace.problems.empty());
  CHECK(trace.activities.kernels.size() == 10);
}

TEST(records_without_times_are_a_problem) {
  const Library library = make_library();
  fake_cupti::knobs().lose_times = true;
  FakeRunner runner("a", nullptr, launch_two);
  const RawTrace trace = trace_runner(library, runner, 1, 1, {});
  CHECK(contains(trace.problems, "4 records have no times"));
  CHECK(trace.activities.kernels.empty());
}

TEST(a_buffer_that_cannot_be_read_is_a_problem) {
  const Library library = make_library();
  fake_cupti::knobs().break_buffers = true;
  FakeRunner runner("a", nullptr, launch_two);
  CHECK(contains(trace_runner(library, runner, 1, 1, {}).problems, "1 buffers could not be read"));
}

TEST(records_that_nobody_asked_for_are_a_problem) {
  const Library library = make_library();
  FakeRunner runner("a", nullptr, [](int call) {
    launch_two(call);
    if (call >= 2) fake_cupti::put(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  });
  const RawTrace trace = trace_runner(library, runner, 3, 1, {});
  CHECK(contains(trace.problems, "3 records are of CUPTI's kind 39"));
  CHECK(trace.activities.kernels.size() == 6);
}

TEST(buffers_from_elsewhere_are_a_problem) {
  const Library library = make_library();
  FakeRunner runner("a", nullptr, [](int) { fake_cupti::deliver_foreign(); });
  CHECK(contains(trace_runner(library, runner, 1, 1, {}).problems, "buffers of another profiler"));
}

TEST(what_cupti_refuses_comes_out_as_it_is) {
  const Library library = make_library();
  fake_cupti::knobs().register_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  FakeRunner runner("a", nullptr, launch_two);
  CHECK_THROWS(trace_runner(library, runner, 1, 1, {}), UnavailableError, "another profiler");
  CHECK(!runner.is_inside());
}

}  // namespace
}  // namespace ftax::cupti
