"""The exceptions of ftax, each named after what the reader can do about it.

They mirror `csrc/core/error.h` name by name: the bindings raise these very classes, so one `except`
clause catches a failure whichever language found it.
"""

__all__ = [
    "FtaxError",
    "InvalidArgumentError",
    "ResultsError",
    "RunnerError",
    "UnavailableError",
    "UnsupportedError",
]


class FtaxError(Exception):
    """The base of every error that ftax raises on purpose."""


class InvalidArgumentError(FtaxError, ValueError):
    """An argument has a wrong value: pass another one."""


class UnsupportedError(FtaxError):
    """This model or option cannot be measured so, by its nature: choose another one."""


class UnavailableError(FtaxError):
    """Something is missing on this machine (a library, a device): install or attach it."""


class RunnerError(FtaxError):
    """The measured code itself failed: it has to run outside ftax first."""


class ResultsError(FtaxError, ValueError):
    """A results file or a record cannot be trusted: the message has the place and the remedy."""
