// A test framework in one page. It is our own because the C++ tests must build on a fresh machine
// that has a compiler and nothing else: no framework to install, and none to fetch. Include it in
// one source file per executable; it brings main().
#pragma once

#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*body)();
};
inline std::vector<Test> tests;
inline bool failed = false;  // whether the running test has failed

inline bool add(const char* name, void (*body)()) noexcept {
  tests.push_back({name, body});
  return true;
}

inline void fail(const char* file, int line, const std::string& message) {
  std::printf("%s:%d: %s\n", file, line, message.c_str());
  failed = true;
}

inline void check_near(double actual, double expected, double tolerance, const char* text,
                       const char* file, int line) {
  if (std::abs(actual - expected) <= tolerance) return;  // false for NaN
  std::printf("%s is %.17g, not %.17g +- %g\n", text, actual, expected, tolerance);
  fail(file, line, "not near");
}

template <typename Exception, typename Body>
void check_throws(Body body, const char* fragment, const char* file, int line) {
  try {
    body();
  } catch (const Exception& error) {
    const std::string what = error.what();
    if (what.find(fragment) == std::string::npos) {
      fail(file, line, "the message '" + what + "' lacks '" + fragment + "'");
    }
    return;
  }
  fail(file, line, std::string("nothing was thrown; expected '") + fragment + "'");
}

}  // namespace check

#define TEST(name)                                             \
  static void name();                                          \
  static const bool name##_added = check::add(#name, &(name)); \
  static void name()
#define CHECK(x) ((x) ? void() : check::fail(__FILE__, __LINE__, "not true: " #x))
#define CHECK_NEAR(x, expected, tolerance) \
  check::check_near(x, expected, tolerance, #x, __FILE__, __LINE__)
// The message has to contain the fragment: an error that does not name the bad value is a defect.
#define CHECK_THROWS(x, Exception, fragment) \
  check::check_throws<Exception>([&] { static_cast<void>(x); }, fragment, __FILE__, __LINE__)

int main() {
  int failures = 0;
  for (const check::Test& test : check::tests) {
    check::failed = false;
    try {
      test.body();
    } catch (const std::exception& error) {
      check::fail(test.name, 0, std::string("threw: ") + error.what());
    }
    if (check::failed) std::printf("FAILED %s\n", test.name);
    failures += check::failed ? 1 : 0;
  }
  std::printf("%d passed, %d failed\n", static_cast<int>(check::tests.size()) - failures, failures);
  return failures == 0 && !check::tests.empty() ? 0 : 1;
}
