"""What a receipt holds: which runtimes it measures, and making them ready; one that fails leaves
its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ftax.errors import (
    FtaxError,
    InvalidArgumentError,
    UnsupportedError,
    describe,
    suggest,
    tell_in_full,
)
from ftax.ladders.ladder import EAGER, Ladder, find_ladder
from ftax.ladders.receipt import Receipt, Unavailable
from ftax.runtimes.catalogue import check_host, find_runtime, list_runtimes
from ftax.runtimes.spec import RuntimeSpec
from ftax.runtimes.workspace import Workspace
from ftax.timing.candidate import Candidate, Place
from ftax.timing.plan import Progress

# Words for `runtimes`, beside names.
CHOICES = ("quick", "available", "all", "none")


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
    trace: Literal["worker", "here", "none"] = "here"
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


def choose_alternatives(
    runtimes: str | Sequence[str],
    device: str,
    hosts: Sequence[str] = ("python", "cpp"),
    ladder: Ladder = EAGER,
    kind: str = "forward",
) -> list[Place]:
    """What is measured beside the ladder; those of "all" need not be able to run here.

    Raises InvalidArgumentError for an unknown name or host.
    """
    named, wanted = find_named(runtimes), [check_host(host) for host in hosts]
    if runtimes == "none":
        return []
    if runtimes == "quick" and ladder.beside:
        return [
            place
            for place in ladder.beside
            if place.host in wanted
            and find_runtime(place.runtime).find_obstacle(host=place.host, device=device, kind=kind)
            is None
        ]
    known = [
        spec
        for spec in list_runtimes()
        if not spec.instrument and (device != "cpu" or "cpu" in spec.devices)
    ]
    if runtimes in ("all", "available"):
        specs = known
    elif runtimes == "quick":
        specs = [spec for spec in known if spec.quick]
    else:
        specs = named
    beside = [
        (spec, Place(spec.name, host))
        for spec in specs
        for host in wanted
        if (spec.name, host) not in ladder.places and (runtimes == "all" or host in spec.hosts)
    ]
    return [
        place
        for spec, place in beside
        if runtimes not in ("quick", "available")
        or spec.find_obstacle(host=place.host, device=device, kind=kind) is None
    ]


def find_named(runtimes: str | Sequence[str]) -> list[RuntimeSpec]:
    """Those that are asked for by name. Raises InvalidArgumentError for none, or an unknown one."""
    if isinstance(runtimes, str) and runtimes in CHOICES:
        return []
    names = [runtimes] if isinstance(runtimes, str) else list(runtimes)
    if not names:
        raise InvalidArgumentError(
            "runtimes is empty; give names, 'quick', 'available', 'all' or 'none'"
        )
    return [find_runtime(name) for name in names]


def check_options(places: Iterable[Place], options: Mapping[str, str]) -> None:
    """Raises InvalidArgumentError for an option that none of these runtimes takes."""
    known = {name for place in places for name in find_runtime(place.runtime).options}
    for name in options:
        if name not in known:
            raise InvalidArgumentError(
                f"none of these runtimes has an option {name!r}; "
                f"{suggest(name, known)}their options: {', '.join(sorted(known)) or 'none'}"
            )


def list_slower(device: str, kind: str = "forward") -> list[str]:
    """Names of the runtimes that "available" adds to "quick" for such a step, without asking each
    what is in its way."""
    return [
        spec.name
        for spec in list_runtimes()
        if device.split(":")[0] in spec.devices
        and (kind == "forward" or spec.any_step)
        and not (spec.quick or spec.instrument)
        and not (any(spec.name == place[0] for place in EAGER.places))
    ]


def prepare_all(
    workspace: Workspace, wanted: Sequence[Place], progress: Progress | None, ladder: Ladder = EAGER
) -> tuple[list[Candidate], list[Unavailable]]:
    """Make ready what is wanted, the first rung first. Raises only if that fails."""
    optional = [rung.place for rung in ladder.rungs if rung.optional]
    prepared: list[Candidate] = []
    unavailable: list[Unavailable] = []
    for done, (runtime, host) in enumerate(wanted):
        if progress:
            progress(f"preparing {runtime} ({host})", done, len(wanted))
        try:
            prepared.append(find_runtime(runtime).prepare(workspace, host))
        except FtaxError as error:
            if done == 0:
                raise  # the model itself does not run
            if (runtime, host) in optional and isinstance(error, UnsupportedError):
                continue  # the model has no such rung
            unavailable.append(
                Unavailable(
                    runtime=runtime, host=host, reason=describe(error), error=tell_in_full(error)
                )
            )
    if progress:
        progress("preparing", len(wanted), len(wanted))
    return prepared, unavailable
