// Dictionaries that tell when they are changed (Python 3.12 and later), so that thousands which did
// not cost nothing to look at. Before 3.12 each has a number instead, which is compared.
//
// One that changes again and again, such as the globals of a script with a loop, is made quiet. It
// is then looked at each time, and no longer has all others looked at.
#pragma once

#include <Python.h>

#include <cstdint>

namespace ftax {

// What is known of one. Its address stays, until it is unwatched as often as it was watched.
struct WatchedDict {
  uint64_t changes = 0;
  int64_t users = 0;
  bool is_quiet = false;
};

// nullptr where this Python cannot watch. All of these expect the GIL.
[[nodiscard]] WatchedDict* watch_dict(PyObject* dict);
void unwatch_dict(PyObject* dict) noexcept;
void make_quiet(WatchedDict& dict);

// Moves on whenever a watched dictionary changes that is not quiet, or becomes it.
[[nodiscard]] uint64_t read_dict_clock();

}  // namespace ftax
