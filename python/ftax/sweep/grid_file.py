"""Grid files: TOML with one grid, or with several as ``[[grid]]``.

The surprising choice: a file says what to measure and nothing else. Where to and how carefully is
the command line's, so that one file serves for a first look and for the real thing.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from ftax.errors import InvalidArgumentError
from ftax.sweep.grid import Grid, make_grid

_KEY = "grid"


def read_grids(path: str | os.PathLike[str]) -> tuple[Grid, ...]:
    """The grids of a file.

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
        except InvalidArgumentError as error:
            where = f"{place}, grid {number}" if len(tables) > 1 else str(place)
            raise InvalidArgumentError(f"{where}: {error}") from error
    if not grids:
        raise InvalidArgumentError(f"{place} has no grid; write models = [...] into it")
    return tuple(grids)
