// The errors that ftax raises. Each class answers one question that a caller may want to branch on
// (who has to act: the caller, nobody, the administrator, the author of the measured code), so
// there is no class per subsystem; Python sees the same names under ftax.errors.
#pragma once

#include <stdexcept>

namespace ftax {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller passed a value that cannot be right.
class InvalidArgumentError : public Error {
 public:
  using Error::Error;
};

// This model or option cannot do it, by its nature, on any machine.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};

// It could be done, but this machine lacks something (a device, a library, a permission).
class UnavailableError : public Error {
 public:
  using Error::Error;
};

// The code that was being measured failed.
class RunnerError : public Error {
 public:
  using Error::Error;
};

}  // namespace ftax
