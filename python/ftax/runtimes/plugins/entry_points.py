"""Runtimes that installed packages bring, through the entry point group ``ftax.runtimes``.

Listing them imports none of them. A package is imported when its runtime is prepared, or when it is
asked whether it works; what fails then is the reason why it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import torch

from ftax.errors import (
    FtaxError,
    UnavailableError,
    UnsupportedError,
    describe,
    is_out_of_memory,
    name_type,
)
from ftax.runtimes.candidates import drive_python
from ftax.runtimes.cost import measure_cost
from ftax.runtimes.workspace import Workspace
from ftax.steps.outputs import flatten_outputs
from ftax.timing.candidate import Candidate

GROUP = "ftax.runtimes"


def find_entry_points() -> list[EntryPoint]:
    """All of the group, in the order of their names."""
    return sorted(entry_points(group=GROUP), key=lambda point: (point.name, origin(point)))


def origin(point: EntryPoint) -> str:
    """The distribution that brings it, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed package"


def find_clash(point: EntryPoint, taken: Iterable[str], others: Iterable[EntryPoint]) -> str | None:
    """Why its name cannot be used; None if it can."""
    if point.name in taken:
        return f"{origin(point)} calls its runtime {point.name}, which is one of ftax's own"
    rivals = [origin(other) for other in others if other.name == point.name and other is not point]
    if rivals:
        return f"{origin(point)} and {rivals[0]} both bring a runtime {point.name}: uninstall one"
    return None


def find_obstacle(point: EntryPoint) -> str | None:
    """Import it; why it cannot be used, or None."""
    try:
        _load(point)
    except FtaxError as error:
        return str(error)
    return None


def prepare_entry_point(workspace: Workspace, point: EntryPoint) -> Candidate:
    """Call the package's function with the model; what it returns is driven from Python.

    Raises UnavailableError if the entry point cannot be used, UnsupportedError if the package
    raises something of its own.
    """
    function = _load(point)
    with measure_cost(workspace.loaded.device) as cost:
        call = _guard(point, "prepare", lambda: function(workspace.loaded))
    if not callable(call):
        raise UnsupportedError(
            f"{_name(point)} returned {type(call).__name__}; it has to return a callable without "
            "arguments"
        )

    def run() -> list[torch.Tensor]:
        with torch.inference_mode():
            outputs = _guard(point, "the callable that it returned", call)
        try:
            return flatten_outputs(outputs)
        except UnsupportedError as error:
            raise UnsupportedError(
                f"{_name(point)}, whose callable stands for the model: {describe(error)}"
            ) from error

    return Candidate(
        runtime=point.name,
        host="python",
        runner=drive_python(workspace, _name(point), call),
        run=run,
        preparation=cost.to_preparation(distribution=origin(point)),
    )


def _load(point: EntryPoint) -> Callable[..., Any]:
    try:
        found = point.load()
    except Exception as error:  # whatever a package's own import raises
        raise UnavailableError(
            f"{_name(point)} cannot be imported ({type(error).__name__}: {describe(error)})"
        ) from error
    if not callable(found):
        raise UnavailableError(
            f"{_name(point)} is {name_type(found)}; it has to be a function that takes an "
            "ftax LoadedModel"
        )
    return found  # type: ignore[no-any-return]


def _guard(point: EntryPoint, what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        if isinstance(error, FtaxError) or is_out_of_memory(error):
            raise  # of ours; or the machine's, which has a remedy of its own
        raise UnsupportedError(
            f"{_name(point)}: {what} raised {type(error).__name__}: {describe(error)}"
        ) from error


def _name(point: EntryPoint) -> str:
    return f"entry point {point.value} of {origin(point)}"
