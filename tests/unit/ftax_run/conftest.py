"""Programs of other Pythons that are started, and what a sampler sees of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ftax_run.frames import Place, Places
from ftax_run.python_process import PythonProcess, find_python
from ftax_run.sampler import SAMPLE, Code, Sampler, Stack

KNOWN = ((3, 11), (3, 12), (3, 13), (3, 14))
OLD = ((3, 10), (3, 9))
_SAY = "import sys; print(*sys.version_info[:2], sys.executable)"


def _find_pythons() -> dict[tuple[int, int], str]:
    """One for each minor version that is on this machine. A name on the PATH may be a script that
    starts another, so each says itself which it is."""
    names = [shutil.which(f"python{major}.{minor}") for major, minor in KNOWN + OLD]
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [sys.executable, *filter(None, names)]
    places += map(str, sorted(root.glob("versions/3.*/bin/python")))
    found: dict[tuple[int, int], str] = {}
    for place in places:
        try:
            done = subprocess.run(
                [place, "-c", _SAY], capture_output=True, text=True, timeout=20, check=True
            )
        except (OSError, subprocess.SubprocessError):  # a shim of a version that is not chosen
            continue
        major, minor, executable = done.stdout.strip().split(" ", 2)
        found.setdefault((int(major), int(minor)), executable)
    return found


_PYTHONS = _find_pythons()


def _get_python(version: tuple[int, int]) -> str:
    if version not in _PYTHONS:
        pytest.skip(f"there is no Python {version[0]}.{version[1]} here")
    return _PYTHONS[version]


@pytest.fixture(params=KNOWN, ids=lambda version: ".".join(map(str, version)))
def python(request: pytest.FixtureRequest) -> str:
    """The executable of each Python whose frames are known."""
    return _get_python(request.param)


@pytest.fixture(params=OLD, ids=lambda version: ".".join(map(str, version)))
def old_python(request: pytest.FixtureRequest) -> str:
    return _get_python(request.param)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program by its source, and returns when it has said that it is ready; ended with
    the test."""
    with ExitStack() as stack:

        def end(program: subprocess.Popen[str]) -> None:
            program.kill()

        def start(
            executable: str, source: str, name: str = "program.py", ready: bool = True
        ) -> subprocess.Popen[str]:
            path = tmp_path / name
            path.write_text(source, encoding="utf-8")
            program = stack.enter_context(
                subprocess.Popen(
                    [executable, "-X", "utf8", str(path)], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True, encoding="utf-8",
                )
            )  # fmt: skip
            stack.callback(end, program)
            if ready:
                assert program.stdout is not None
                assert program.stdout.readline() == "ready\n"
            return program

        yield start


class Seen:
    """What a sampler told of some processes."""

    def __init__(self) -> None:
        self.samples = np.empty(0, SAMPLE)
        self.stacks: dict[int, Stack] = {}
        self.codes: dict[int, Code] = {}
        self.torn = self.lost = 0
        self.places = Places()

    def learn(self, sampler: Sampler) -> None:
        news = sampler.drain()
        self.samples = np.concatenate([self.samples, news.samples])
        self.stacks |= news.stacks
        self.codes |= news.codes
        self.places.learn(news.stacks, news.codes)
        self.torn += news.torn
        self.lost += news.lost

    def list_frames(self, stack: int) -> list[Place]:
        """From the outermost."""
        return list(self.places.list_outer(int(stack)))

    def list_names(self, stack: int) -> tuple[str, ...]:
        return tuple(name for _, _, name in self.list_frames(stack))


@pytest.fixture
def look() -> Callable[..., Seen]:
    """Samples processes until there are so many samples and so much time has passed."""

    def look(
        pids: Sequence[int], rate: float = 2000, seconds: float = 0.1, least: int = 50,
        until: Callable[[], Any] | None = None,
    ) -> Seen:  # fmt: skip
        pythons: list[PythonProcess | None] = [find_python(pid) for pid in pids]
        seen = Seen()
        with Sampler(rate) as sampler:
            for index, process in enumerate(pythons):
                assert process is not None
                assert sampler.add(process) == index
            begin = time.monotonic()
            while (
                (passed := time.monotonic() - begin) < seconds
                or (passed < 20 and len(seen.samples) + seen.torn < least)
                or (until is not None and passed < 20 and not until())
            ):
                time.sleep(0.02)
                seen.learn(sampler)
            seen.learn(sampler)
        return seen

    return look


@pytest.fixture
def ask() -> Callable[..., str]:
    """What a program of another Python prints."""

    def ask(executable: str, source: str, *words: str, **options: Any) -> str:
        done = subprocess.run(
            [executable, "-X", "utf8", "-c", source, *words], stdout=subprocess.PIPE, text=True,
            encoding="utf-8", timeout=60, check=True, **options,
        )  # fmt: skip
        return done.stdout

    return ask
