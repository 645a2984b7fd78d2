"""What a receipt holds beside its rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ftax.ladders.choice import find_named
from ftax.ladders.ladder import find_ladder
from ftax.ladders.receipt import Receipt
from ftax.runtimes.catalogue import check_host

TraceChoice = Literal["worker", "here", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxOptions:
    """What a receipt holds beside the rounds; docstring of `ftax.tax`.

    ``keep`` is given the receipt of the rounds before anything looks closer at the GPU, where a
    runtime that faults takes its process with it. Unless it ``may_wait``, nothing comes of rounds
    whose requests waited for CPUs.
    """

    runtimes: str | Sequence[str] = "quick"
    hosts: Sequence[str] = ("python", "cpp")
    operators: bool = True
    trace: TraceChoice = "here"
    energy: bool = False
    throughput: bool = False
    ladder: str = ""  # the one that fits the step
    keep: Callable[[Receipt], None] | None = None
    may_wait: bool = True

    def __post_init__(self) -> None:
        """Raises InvalidArgumentError for names that nothing has, before a model is built."""
        if self.ladder:
            find_ladder(self.ladder)
        find_named(self.runtimes)
        for host in self.hosts:
            check_host(host)
