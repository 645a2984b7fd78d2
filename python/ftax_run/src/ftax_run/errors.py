"""What can go wrong, each with one line for the user."""

from __future__ import annotations


class RunError(Exception):
    """Something that the user can mend; the message says what and how."""


class UnknownPythonError(RunError):
    """A Python whose frames cannot be read."""
