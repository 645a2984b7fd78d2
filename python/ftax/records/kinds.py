"""Which kinds of result there are: the class that reads each from a file, and what draws it.

Both are names here, and `ftax/__init__.py` tells them. A record stands below what draws it, and a
file below all that it may hold; so neither is imported before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Kind:
    """``record`` is the class, ``drawing`` the function from a record to the `Printout` of it, and
    ``details`` that to all of it where that is more; each as ``module:name``; an empty one: there
    is none. Not a dataclass: to make one takes half of what `import ftax` does."""

    def __init__(self, *, record: str = "", drawing: str = "", details: str = "") -> None:
        self.record, self.drawing, self.details = record, drawing, details


KINDS: dict[str, Kind] = {}


def find(place: str) -> Any:
    """What ``module:name`` is."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
