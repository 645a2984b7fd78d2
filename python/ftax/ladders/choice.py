"""Which runtimes a receipt measures, and making them ready; one that fails leaves its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

from ftax.errors import (
    FtaxError,
    InvalidArgumentError,
    UnsupportedError,
    describe,
    suggest,
    tell_in_full,
)
from ftax.ladders.ladder import CPU_RUNGS, RUNGS
from ftax.ladders.receipt import Unavailable
from ftax.runtimes.catalogue import RuntimeSpec, check_host, find_runtime, list_runtimes
from ftax.runtimes.workspace import Workspace
from ftax.timing.candidate import Candidate, Host
from ftax.timing.session import Progress

# Words for `runtimes`, beside names.
CHOICES = ("quick", "available", "all", "none")


def list_rungs(device: str) -> list[tuple[str, Host]]:
    """The rungs that a device can have."""
    return [*RUNGS] if device != "cpu" else [*CPU_RUNGS]


def choose_alternatives(
    runtimes: str | Sequence[str], device: str, hosts: Sequence[str] = ("python", "cpp")
) -> list[tuple[str, Host]]:
    """(runtime, host) pairs beside the ladder; those of "all" need not be able to run here.

    Raises InvalidArgumentError for an unknown name or host.
    """
    wanted = [check_host(host) for host in hosts]
    if runtimes == "none":
        return []
    known = [spec for spec in list_runtimes() if device != "cpu" or "cpu" in spec.devices]
    if runtimes == "all":
        return [
            (spec.name, host)
            for spec in known
            for host in wanted
            if (spec.name, host) not in RUNGS and not _is_instrument(spec)
        ]
    if runtimes == "available":
        specs = known
    elif runtimes == "quick":
        specs = [spec for spec in known if spec.quick]
    else:
        names = [runtimes] if isinstance(runtimes, str) else list(runtimes)
        if not names:
            raise InvalidArgumentError(
                "runtimes is empty; give names, 'quick', 'available', 'all' or 'none'"
            )
        specs = [find_runtime(name) for name in names]
    return [
        (spec.name, host)
        for spec in specs
        for host in wanted
        if host in spec.hosts
        and (spec.name, host) not in RUNGS
        and (
            runtimes not in ("quick", "available")
            or spec.find_obstacle(host=host, device=device) is None
        )
    ]


def check_options(places: Iterable[tuple[str, Host]], options: Mapping[str, str]) -> None:
    """Raises InvalidArgumentError for an option that none of these runtimes takes."""
    known = {name for runtime, _ in places for name in find_runtime(runtime).options}
    for name in options:
        if name not in known:
            raise InvalidArgumentError(
                f"none of these runtimes has an option {name!r}; "
                f"{suggest(name, known)}their options: {', '.join(sorted(known)) or 'none'}"
            )


def list_slower(device: str) -> list[str]:
    """Names of the installed runtimes that "available" adds to "quick", without asking each what
    else is in its way."""
    return [
        spec.name
        for spec in list_runtimes()
        if device.split(":")[0] in spec.devices
        and all(find_spec(package) for package in spec.packages)
        and not (spec.quick or spec.never or any((spec.name, host) in RUNGS for host in spec.hosts))
    ]


def _is_instrument(spec: RuntimeSpec) -> bool:
    """Whether it exists as rungs only, so that the host it lacks is nothing to explain."""
    return all((spec.name, host) in RUNGS for host in spec.hosts)


def prepare_all(
    workspace: Workspace, wanted: Sequence[tuple[str, Host]], progress: Progress | None
) -> tuple[list[Candidate], list[Unavailable]]:
    """Prepare (runtime, host) pairs, Python eager first. Raises only if the first one fails."""
    prepared: list[Candidate] = []
    unavailable: list[Unavailable] = []
    for place, (runtime, host) in enumerate(wanted):
        if progress:
            progress(f"preparing {runtime} ({host})", place, len(wanted))
        try:
            prepared.append(find_runtime(runtime).prepare(workspace, host))
        except FtaxError as error:
            if not prepared and (runtime, host) == RUNGS[0]:
                raise  # the model itself does not run
            if runtime == "tape-without-host-reads" and isinstance(error, UnsupportedError):
                continue  # the model reads nothing back: there is no such rung
            unavailable.append(
                Unavailable(
                    runtime=runtime, host=host, reason=describe(error), error=tell_in_full(error)
                )
            )
    if progress:
        progress("preparing", len(wanted), len(wanted))
    return prepared, unavailable
