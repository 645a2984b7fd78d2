"""Models that installed packages bring, through the entry point group ``ftax.models``.

An entry point is named as its model is, so that a name is found without importing other packages. A
package that is broken is left out of lists, and says why by name.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points

from ftax.errors import FtaxError, InvalidArgumentError, UnavailableError, describe, name_type
from ftax.steps.spec import ModelSpec

GROUP = "ftax.models"


def find_installed(name: str) -> ModelSpec | None:
    """The model of that name; None if no package brings one.

    Raises UnavailableError if its package cannot be imported, InvalidArgumentError if two bring it
    or it is no model.
    """
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if len(points) > 1:
        both = " and ".join(sorted(_name_package(point) for point in points[:2]))
        raise InvalidArgumentError(f"{both} both bring a model {name!r}: uninstall one")
    return _load(points[0]) if points else None


def list_installed(taken: Collection[str]) -> list[ModelSpec]:
    """All that can be had, in the order of their names, but for ``taken`` names."""
    found = []
    for name in sorted({point.name for point in entry_points(group=GROUP)} - set(taken)):
        try:
            spec = find_installed(name)
        except FtaxError:  # which whoever asks for it by name is told
            continue
        found += [] if spec is None else [spec]
    return found


def _load(point: EntryPoint) -> ModelSpec:
    where = f"entry point {point.value} of {_name_package(point)}"
    try:
        found = point.load()
        spec = found if isinstance(found, ModelSpec) or not callable(found) else found()
    except Exception as error:  # whatever a package's own code raises
        raise UnavailableError(
            f"{where} cannot be imported ({type(error).__name__}: {describe(error)})"
        ) from error
    if not isinstance(spec, ModelSpec):
        raise InvalidArgumentError(
            f"{where} is {name_type(spec)}: give an ftax.ModelSpec, or a function that returns one"
        )
    if spec.name != point.name:
        raise InvalidArgumentError(
            f"{where} is named {point.name!r} and its model {spec.name!r}: give both one name"
        )
    return spec


def _name_package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed package"
