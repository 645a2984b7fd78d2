"""Environment variables that a library reads once, when it loads: set for that moment only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def environment_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Inside, these variables are set so; afterwards all of them are what they were."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
