// Opening CUPTI: what is missing, what is something else, what is too old, and what works.
#include <cstdlib>
#include <string>

#include "check.h"
#include "core/error.h"
#include "cupti/library.h"
#include "fake_cupti.h"

namespace ftax::cupti {
namespace {

const std::string kFake = FTAX_FAKE_CUPTI;

TEST(a_file_that_is_not_there_is_named_with_a_remedy) {
  CHECK_THROWS(Library("/nonexistent/libcupti.so"), UnavailableError, "/nonexistent/libcupti.so");
  CHECK_THROWS(Library("/nonexistent/libcupti.so"), UnavailableError, "FTAX_CUPTI_LIBRARY");
}

TEST(a_library_of_something_else_is_refused_by_what_it_lacks) {
  CHECK_THROWS(Library("libm.so.6"), UnavailableError, "cuptiGetVersion");
}

TEST(a_library_that_is_too_old_is_refused_by_its_version) {
  fake_cupti::reset();
  fake_cupti::knobs().version = 16;
  CHECK_THROWS(Library(kFake), UnavailableError, "its version is 16");
}

TEST(a_library_tells_its_file_and_version) {
  fake_cupti::reset();
  const Library library(kFake);
  CHECK(library.path() == kFake);
  CHECK(library.version() == 130000);
}

TEST(the_library_of_the_process_is_the_one_that_the_variable_names) {
  fake_cupti::reset();
  setenv("FTAX_CUPTI_LIBRARY", "/nonexistent/libcupti.so", 1);
  CHECK_THROWS(Library::open(), UnavailableError, "/nonexistent/libcupti.so");
  setenv("FTAX_CUPTI_LIBRARY", kFake.c_str(), 1);  // a failure is not remembered
  CHECK(Library::open().path() == kFake);
  CHECK(&Library::open() == &Library::open());
}

TEST(a_failed_call_is_named_with_code_and_remedy) {
  fake_cupti::reset();
  const Library library(kFake);
  library.check(CUPTI_SUCCESS, "cuptiSomething");
  CHECK_THROWS((library.check(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "cuptiSomething"), 0),
               UnavailableError,
               "cuptiSomething failed: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)");
  CHECK_THROWS((library.check(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "cuptiSomething"), 0),
               UnavailableError, "torch.profiler");
}

}  // namespace
}  // namespace ftax::cupti
