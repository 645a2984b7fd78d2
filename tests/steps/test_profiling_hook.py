"""Whoever listens to calls is told of them again, after ftax has listened."""

import cProfile
import sys

import pytest

from ftax.steps.profiling_hook import profiling_hook


def meant() -> None:
    pass


def listen(seen: list[str]) -> None:
    with profiling_hook(lambda frame, event, _: seen.append(f"{event} {frame.f_code.co_name}")):
        meant()


def test_another_hook_comes_back():
    theirs: list[str] = []
    ours: list[str] = []
    sys.setprofile(lambda frame, event, _: theirs.append(f"{event} {frame.f_code.co_name}"))
    try:
        listen(ours)
        meant()
    finally:
        sys.setprofile(None)
    assert ours.count("call meant") == theirs.count("call meant") == 1


def test_cprofile_goes_on():
    ours: list[str] = []
    with cProfile.Profile() as profile:
        listen(ours)
        meant()
    profile.create_stats()
    counts = {name: entry[0] for (_, _, name), entry in profile.stats.items()}  # type: ignore[attr-defined]
    assert ours.count("call meant") == counts["meant"] == 1
    assert sys.getprofile() is None


def test_it_comes_back_where_what_is_watched_fails():
    seen: list[str] = []
    with pytest.raises(ValueError, match="mine"), profiling_hook(lambda *_: seen.append("told")):
        raise ValueError("mine")
    assert sys.getprofile() is None
