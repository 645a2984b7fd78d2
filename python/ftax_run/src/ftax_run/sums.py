"""Amounts that add up, each under what it is of."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


class Sums(dict[Key, float]):
    """A dictionary of numbers, in which what was not met is 0."""

    def __missing__(self, key: Key) -> float:
        return 0.0

    def add(self, other: Sums[Key]) -> None:
        """The amounts of both."""
        for key, amount in other.items():
            self[key] += amount

    def scale(self, factor: float) -> Sums[Key]:
        """Each amount times ``factor``."""
        return Sums({key: amount * factor for key, amount in self.items()})

    def list_largest(self, count: int | None = None) -> list[tuple[Key, float]]:
        """So many, the largest first; all without a number."""
        return sorted(self.items(), key=lambda item: -item[1])[:count]

    def rank(self) -> list[tuple[Key, float]]:
        """The largest first. Equal ones, however they were added up, are in the order of their
        names, so that a record says what the run said."""
        return sorted(self.items(), key=lambda item: (-round(item[1], 1), str(item[0])))

    def keep_largest(self, count: int, rest: Callable[[Key], Key]) -> None:
        """Where there are twice as many, only so many stay; others are added to their ``rest``."""
        if len(self) > 2 * count:
            ordered = self.list_largest()
            self.clear()
            self.update(ordered[:count])
            for key, amount in ordered[count:]:
                self[rest(key)] += amount
