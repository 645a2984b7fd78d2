// Watches for operator calls of all threads but the one that asks and those that run its backward
// pass: what a recording of one thread does not have.
#pragma once

#include <string>

namespace ftax {

// Throws UnavailableError if they are watched already.
void watch_other_threads();
// The first that they called since ("aten::addmm"); "" if none.
std::string unwatch_other_threads();

}  // namespace ftax
