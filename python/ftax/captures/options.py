"""What `ftax.capture` can be told, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ftax.errors import InvalidArgumentError, name_type

OnHostRead = Literal["refuse", "check"]
CaptureKind = Literal["auto", "tape", "graph"]
OnRefusal = Literal["raise", "eager"]
OnMiss = Literal["capture", "eager", "raise"]
_CHOICES = {
    "kind": ("auto", "tape", "graph"),
    "on_host_read": ("refuse", "check"),
    "on_refusal": ("raise", "eager"),
    "on_miss": ("capture", "eager", "raise"),
}


class CaptureOptions(TypedDict, total=False):
    """Keywords of `ftax.capture`."""

    kind: CaptureKind
    on_host_read: OnHostRead
    on_refusal: OnRefusal
    on_miss: OnMiss
    max_bytes: int | None
    borrow: bool
    depth: int
    audit: bool
    ignore: Sequence[str]
    reset: Callable[[], object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Those of `ftax.capture`. ``max_bytes``: None for a share of what there is."""

    kind: CaptureKind = "auto"
    on_host_read: OnHostRead = "refuse"
    on_refusal: OnRefusal = "raise"
    on_miss: OnMiss = "capture"
    max_bytes: int | None = None
    borrow: bool = False
    depth: int = 1
    audit: bool = True
    ignore: Sequence[str] = ()
    reset: Callable[[], object] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As keywords of `ftax.capture`."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                words = ", ".join(map(repr, choices))
                raise InvalidArgumentError(f"{name} is {value!r}; it has to be one of {words}")
        most = self.max_bytes
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 0):
            raise InvalidArgumentError(f"max_bytes is {most!r}; give a number of bytes, or None")
        if not isinstance(self.depth, int) or isinstance(self.depth, bool) or self.depth < 1:
            raise InvalidArgumentError(
                f"depth is {self.depth!r}; give how many calls may wait for their backward pass, "
                "1 or more"
            )
        if isinstance(self.ignore, str) or not all(isinstance(item, str) for item in self.ignore):
            raise InvalidArgumentError(
                f"ignore is {self.ignore!r}: give names of attributes or variables, such as "
                "('calls',)"
            )
        if self.reset is not None and not callable(self.reset):
            raise InvalidArgumentError(
                f"reset is {name_type(self.reset)}: give a function without arguments"
            )
