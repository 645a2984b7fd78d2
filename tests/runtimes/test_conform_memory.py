"""When memory of the GPU counts as left behind, on readings made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ftax.runtimes.plugins.case import CheckFailedError, Subject
from ftax.runtimes.plugins.conform import memory


def make_subject() -> Subject:
    """Its runners take nothing."""
    bound = SimpleNamespace(run=lambda seed: None)
    return cast("Subject", SimpleNamespace(bind=lambda: bound))


def give_readings(monkeypatch: pytest.MonkeyPatch, *free_bytes: int) -> list[int]:
    """Free memory before and after each series; what is left of it was not asked for."""
    readings = list(free_bytes)

    def read(subject: Any) -> int:
        return readings.pop(0)

    monkeypatch.setattr(memory, "_read_device_bytes", read)
    return readings


def test_what_is_taken_once_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = give_readings(monkeypatch, 900_000, 834_464, 834_464, 834_464)
    assert memory.check_leaks(make_subject()) == "in 25 runners"
    assert readings == []


def test_what_is_taken_every_time_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    give_readings(monkeypatch, 900, 800, 800, 700, 700, 600)
    with pytest.raises(CheckFailedError, match="left 100 bytes of the GPU's memory behind"):
        memory.check_leaks(make_subject())
