"""Which kinds of result there are: the class that reads each from a file, and what draws it.

Both are names here, and `ftax/__init__.py` tells them. A record stands below what draws it, and a
file below all that it may hold; so neither is imported before it is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """``record`` is the class, ``drawing`` the function from a record to the `Printout` of it, and
    ``details`` that to all of it where that is more; each as ``module:name``; an empty one: there
    is none."""

    record: str = ""
    drawing: str = ""
    details: str = ""


KINDS: dict[str, Kind] = {}


def find(place: str) -> Any:
    """What ``module:name`` is."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
