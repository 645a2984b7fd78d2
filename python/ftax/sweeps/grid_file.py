"""Grid files: TOML with one grid, or with several as ``[[grid]]``.

The surprising choice: a file says what to measure and nothing else. Where to and how carefully is
the command line's, so that one file serves for a first look and for the real thing. So is trust: a
file from somebody else names what is to be run, and brings no code of its own.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from ftax.errors import InvalidArgumentError
from ftax.runtimes.catalogue import is_library
from ftax.sweeps.grid import Grid, make_grid

_KEY = "grid"


def read_grids(path: str | os.PathLike[str], *, allow_libraries: bool = False) -> tuple[Grid, ...]:
    """The grids of a file.

    Args:
        allow_libraries: the file may name shared libraries as runtimes; they would be loaded and
            run with the rights of whoever sweeps.

    Raises InvalidArgumentError, naming the file and what is wrong in it.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise InvalidArgumentError(
            f"{place} cannot be read ({error.strerror}); give a grid file, or --model"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{place} is not TOML: {error}") from error
    tables = values.get(_KEY, [values])
    if _KEY in values and len(values) > 1:
        other = next(name for name in values if name != _KEY)
        raise InvalidArgumentError(
            f"{place} has {other!r} beside [[grid]]; put it into each grid that it is for"
        )
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidArgumentError(f"{place}: write each grid as a table [[grid]]")
    grids = []
    for number, table in enumerate(tables, start=1):
        try:
            grids.append(make_grid(table))
            _check_libraries(grids[-1], allow_libraries)
        except InvalidArgumentError as error:
            where = f"{place}, grid {number}" if len(tables) > 1 else str(place)
            raise InvalidArgumentError(f"{where}: {error}") from error
    if not grids:
        raise InvalidArgumentError(f"{place} has no grid; write models = [...] into it")
    return tuple(grids)


def _check_libraries(grid: Grid, allowed: bool) -> None:
    for runtime, _ in grid.pairs:
        if is_library(runtime) and not allowed:
            raise InvalidArgumentError(
                f"runtimes has {runtime!r}, a shared library, which the sweep would load and run "
                "with your rights; if you trust it, give --allow-libraries (in Python "
                "allow_libraries=True), or name it by --runtime instead of in a file"
            )
