// Sessions against a CUPTI without a GPU: what is registered when, what is left behind, and what
// becomes of buffers that come too late, or from elsewhere, or not at all.
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "core/clock.h"
#include "core/error.h"
#include "cupti/buffers.h"
#include "cupti/session.h"
#include "fake_cupti.h"

namespace ftax::cupti {
namespace {

constexpr int64_t kUs = 1000;
constexpr uint64_t kYear = 365ull * 86400 * 1'000'000'000;

const std::vector<CUpti_ActivityKind> kKinds{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                             CUPTI_ACTIVITY_KIND_RUNTIME};

Library make_library() {
  fake_cupti::reset();
  return Library(FTAX_FAKE_CUPTI);
}

bool clock_is_realtime() { return fake_cupti::read_clock() > 50 * kYear; }  // since 1970

TEST(records_reach_the_session) {
  const Library library = make_library();
  Session session(library, kKinds);
  const int64_t before_ns = now_ns();
  fake_cupti::launch("first", 2 * kUs);
  fake_cupti::launch("second", 3 * kUs);
  const Collection collection = session.collect();
  CHECK(collection.activities.kernels.size() == 2);
  CHECK(collection.activities.api_calls.size() == 2);
  CHECK(collection.activities.kernels.at(1).name == "second");
  CHECK(collection.activities.kernels.at(0).start_ns >= before_ns);
  CHECK(collection.activities.kernels.at(1).end_ns - collection.activities.kernels.at(1).start_ns ==
        3 * kUs);
  CHECK(collection.buffers == 1);
  CHECK(collection.dropped_records == 0);
  CHECK(collection.foreign_buffers == 0);
}

TEST(detaching_leaves_nothing_and_a_later_session_attaches_again) {
  const Library library = make_library();
  {
    const Session session(library, kKinds);
  }
  CHECK(detach(library));
  CHECK(fake_cupti::journal().back() == "finalize");
  Session session(library, kKinds);
  fake_cupti::launch("later", kUs);
  CHECK(session.collect().activities.kernels.size() == 1);
}

TEST(nothing_is_detached_from_under_another_client_or_an_open_session) {
  const Library library = make_library();
  fake_cupti::knobs().other_subscriber = true;
  CHECK(!detach(library));
  fake_cupti::knobs().other_subscriber = false;
  {
    const Session session(library, kKinds);
    CHECK(!detach(library));
  }
  for (const std::string& entry : fake_cupti::journal()) CHECK(entry != "finalize");
  CHECK(detach(library));
}

TEST(what_was_collected_does_not_come_again) {
  const Library library = make_library();
  Session session(library, kKinds);
  fake_cupti::launch("first", kUs);
  CHECK(session.collect().activities.kernels.size() == 1);
  fake_cupti::launch("second", kUs);
  CHECK(session.collect().activities.kernels.at(0).name == "second");
  CHECK(session.collect().activities.kernels.empty());
}

TEST(records_of_many_buffers_all_arrive) {
  const Library library = make_library();
  Session session(library, kKinds);
  constexpr int kLaunches = 3 * (kBufferBytes / 512) / 2;  // two records each: three buffers
  for (int i = 0; i < kLaunches; ++i) fake_cupti::launch("kernel", 1);
  const Collection collection = session.collect();
  CHECK(collection.buffers == 3);
  CHECK(collection.activities.kernels.size() == kLaunches);
  CHECK(collection.activities.api_calls.size() == kLaunches);
}

TEST(the_clock_is_set_before_any_kind_is_enabled) {
  const Library library = make_library();
  const Session session(library, kKinds);
  CHECK((fake_cupti::journal() == std::vector<std::string>{"callbacks", "clock", "+10", "+5"}));
  const uint64_t before_ns = static_cast<uint64_t>(now_ns());
  const uint64_t cupti_ns = fake_cupti::read_clock();
  CHECK(before_ns <= cupti_ns && cupti_ns <= static_cast<uint64_t>(now_ns()));
}

TEST(a_stopped_session_records_no_more_but_can_be_collected) {
  const Library library = make_library();
  Session session(library, kKinds);
  fake_cupti::launch("before", kUs);
  session.stop();
  CHECK(fake_cupti::enabled_kinds().empty());
  fake_cupti::launch("after", kUs);
  const Collection collection = session.collect();
  CHECK(collection.activities.kernels.size() == 1);
}

TEST(a_session_leaves_nothing_enabled_and_the_clock_that_cupti_has_by_itself) {
  const Library library = make_library();
  {
    const Session session(library, kKinds);
    CHECK((fake_cupti::enabled_kinds() == std::vector<int>{5, 10}));
    CHECK(!clock_is_realtime());
  }
  CHECK(fake_cupti::enabled_kinds().empty());
  CHECK(clock_is_realtime());
}

TEST(a_refused_registration_is_an_error_and_changes_nothing) {
  const Library library = make_library();
  fake_cupti::knobs().register_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  CHECK_THROWS(Session(library, kKinds), UnavailableError,
               "cuptiActivityRegisterCallbacks failed: "
               "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
  CHECK(fake_cupti::journal().empty());
}

TEST(a_refused_clock_is_an_error_and_nothing_is_enabled) {
  const Library library = make_library();
  fake_cupti::knobs().clock_result = CUPTI_ERROR_NOT_COMPATIBLE;
  CHECK_THROWS(Session(library, kKinds), UnavailableError,
               "cuptiActivityRegisterTimestampCallback");
  CHECK(fake_cupti::enabled_kinds().empty());
}

TEST(a_refused_kind_is_an_error_and_the_others_are_disabled) {
  const Library library = make_library();
  fake_cupti::knobs().refused_kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  fake_cupti::knobs().enable_result = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  CHECK_THROWS(Session(library, kKinds), UnavailableError, "cuptiActivityEnable(kind 5)");
  CHECK_THROWS(Session(library, kKinds), UnavailableError, "NVreg_RestrictProfilingToAdminUsers");
  CHECK(fake_cupti::enabled_kinds().empty());
  CHECK(clock_is_realtime());
}

TEST(a_failed_flush_is_an_error_and_the_session_still_ends) {
  const Library library = make_library();
  {
    Session session(library, kKinds);
    fake_cupti::knobs().flush_result = CUPTI_ERROR_UNKNOWN;
    CHECK_THROWS(session.collect(), UnavailableError, "cuptiActivityFlushAll");
  }
  CHECK(fake_cupti::enabled_kinds().empty());
}

TEST(a_second_session_is_refused_while_the_first_is_open) {
  const Library library = make_library();
  {
    const Session session(library, kKinds);
    CHECK_THROWS(Session(library, kKinds), UnavailableError, "already running");
    CHECK(fake_cupti::enabled_kinds().size() == 2);  // the first one goes on
  }
  const Session next(library, kKinds);
}

TEST(a_process_that_a_profiler_started_is_refused) {
  const Library library = make_library();
  for (const char* name :
       {"NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH", "NV_NSIGHT_INJECTION_PORT_BASE"}) {
    setenv(name, "1", 1);
    CHECK_THROWS(Session(library, kKinds), UnavailableError, name);
    setenv(name, "", 1);  // set to nothing is not set
    const Session allowed(library, kKinds);
    unsetenv(name);
  }
}

TEST(dropped_records_are_counted) {
  const Library library = make_library();
  Session session(library, kKinds);
  fake_cupti::knobs().drop_kernels = true;
  for (int i = 0; i < 4; ++i) fake_cupti::launch("kernel", kUs);
  const Collection collection = session.collect();
  CHECK(collection.dropped_records == 4);
  CHECK(collection.activities.kernels.empty());
  CHECK(collection.activities.api_calls.size() == 4);
}

// See Note [Late buffers].
TEST(a_buffer_that_comes_after_its_session_belongs_to_nobody) {
  const Library library = make_library();
  {
    Session session(library, kKinds);
    fake_cupti::launch("late", kUs);
    fake_cupti::knobs().keep_buffers = true;
    CHECK(session.collect().activities.kernels.empty());
  }
  fake_cupti::deliver();
  fake_cupti::knobs().keep_buffers = false;
  Session next(library, kKinds);
  CHECK(next.collect().activities.kernels.empty());
  fake_cupti::launch("new", kUs);
  CHECK(next.collect().activities.kernels.size() == 1);
}

TEST(a_buffer_from_elsewhere_is_left_alone_and_counted) {
  const Library library = make_library();
  Session session(library, kKinds);
  fake_cupti::deliver_foreign();
  const Collection collection = session.collect();
  CHECK(collection.foreign_buffers == 1);
  CHECK(collection.buffers == 0);
}

TEST(the_pool_lends_each_buffer_once_and_no_more_than_it_has) {
  BufferPool pool;
  pool.open();
  std::set<uint8_t*> lent;
  for (size_t i = 0; i < BufferPool::kCapacity; ++i) {
    uint8_t* buffer = pool.lend();
    CHECK(buffer != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(buffer) % 8 == 0);
    lent.insert(buffer);
  }
  CHECK(lent.size() == BufferPool::kCapacity);
  CHECK(pool.lend() == nullptr);
  pool.take_back(*lent.begin(), 100);
  CHECK(pool.lend() == nullptr);  // filled, and not read yet
  const BufferPool::Filled filled = pool.find_filled();
  CHECK(filled.data == *lent.begin());
  CHECK(filled.valid_bytes == 100);
  pool.recycle(filled.data);
  CHECK(pool.find_filled().data == nullptr);
  CHECK(pool.lend() == filled.data);
  for (uint8_t* buffer : lent) pool.take_back(buffer, 0);
  pool.close();
}

TEST(a_buffer_that_is_out_stays_valid_when_the_pool_closes) {
  BufferPool pool;
  pool.open();
  uint8_t* buffer = pool.lend();
  pool.close();
  buffer[kBufferBytes - 1] = 1;  // a sanitizer would see a freed one
  pool.take_back(buffer, 1);
  CHECK(pool.find_filled().data == nullptr);
  CHECK(pool.count_foreign() == 0);
  pool.take_back(buffer, 1);  // twice: it was not out any more
  CHECK(pool.count_foreign() == 1);
  pool.close();
}

}  // namespace
}  // namespace ftax::cupti
