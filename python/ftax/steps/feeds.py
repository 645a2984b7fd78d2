"""Where a step takes its batches from: iterators that its names lead to, and loaders.

While a step is measured, an iterator gives the same batch in each run, so that each run is the same
work and random augmentation changes nothing. What the batches themselves cost is timed after the
rounds, with the iterator going on as it does for the user.
"""

from __future__ import annotations

import functools
import io
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from ftax.steps.reach import is_library, list_cells, list_co_names

LOADER, FORWARD = "loader", "forward"  # phases


class Feed(Iterator[Any]):
    """An iterator in the place of ``source``: the first item time after time, or, inside of `live`,
    one after the other. ``restart`` begins another epoch where one ends."""

    def __init__(
        self, source: Iterator[Any], restart: Callable[[], Iterator[Any]] | None = None
    ) -> None:
        self._source, self._restart = source, restart
        self._items: list[Any] = []  # the one that is given each time
        self._mark: Callable[[str], None] | None = None

    @classmethod
    def of(cls, loader: Iterable[Any]) -> Self:
        """Of a loader, epoch after epoch."""
        return cls(iter(loader), lambda: iter(loader))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._mark is not None:
            self._mark(LOADER)
            item = self._take()
            self._mark(FORWARD)
            return item
        if not self._items:
            self._items.append(self._take())
        return self._items[0]

    @property
    def was_asked(self) -> bool:
        """Whether it has given an item."""
        return bool(self._items)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def _take(self) -> Any:
        try:
            return next(self._source)
        except StopIteration:
            if self._restart is None:
                raise
            self._source = self._restart()
            return next(self._source)

    @contextmanager
    def live(self, mark: Callable[[str], None]) -> Iterator[None]:
        """Inside, take from the source; ``mark`` is told which phase begins."""
        self._mark = mark
        try:
            yield
        finally:
            self._mark = None


def put_feeds(function: Callable[..., Any]) -> tuple[list[tuple[Feed, str]], Callable[[], None]]:
    """Put a `Feed` in the place of each iterator that the function's closure, its globals and the
    attributes of the object that it is a method of hold; returns them with what the user calls
    them, and what undoes it."""
    feeds: list[tuple[Feed, str]] = []
    undo: list[Callable[[], None]] = []
    for name, value, write in _list_places(function):
        if isinstance(value, Iterator) and not isinstance(value, Feed | io.IOBase):
            feed = Feed(value)
            write(feed)
            feeds.append((feed, name))
            undo.append(functools.partial(write, value))

    def put_back() -> None:
        for one in undo:
            one()

    return feeds, put_back


_Place = tuple[str, Any, Callable[[Any], None]]  # a name, what is there, and what writes it


def _list_places(function: Any) -> Iterator[_Place]:
    if not isinstance(function, types.FunctionType | types.MethodType):
        function = function.__call__  # of an object of the user's
    if isinstance(function, types.MethodType):
        owner, function = function.__self__, function.__func__
        for name, value in list(getattr(owner, "__dict__", {}).items()):
            yield name, value, functools.partial(setattr, owner, name)
    if not isinstance(function, types.FunctionType) or is_library(function.__code__.co_filename):
        return
    for name, cell in list_cells(function):
        yield name, cell.cell_contents, functools.partial(setattr, cell, "cell_contents")
    space = function.__globals__
    for name in list_co_names(function.__code__):
        if name in space:
            yield name, space[name], functools.partial(space.__setitem__, name)
