"""Whoever listens to calls is told of them again, after ftax has listened."""

import cProfile
import sys
from collections.abc import Callable

import pytest

from ftax.steps.profiling_hook import watch_calls

# From then on cProfile looks on another way, which nobody displaces.
BESIDE = sys.version_info >= (3, 12)


def meant() -> None:
    pass


def listen_to(seen: list[str]) -> Callable[..., None]:
    return lambda frame, event, _: seen.append(f"{event} {frame.f_code.co_name}")


def test_another_hook_comes_back():
    theirs: list[str] = []
    ours: list[str] = []
    hook = listen_to(theirs)
    sys.setprofile(hook)
    try:
        watch_calls(listen_to(ours), meant)
        assert sys.getprofile() is hook
        meant()
    finally:
        sys.setprofile(None)
    assert ours.count("call meant") == theirs.count("call meant") == 1


def test_cprofile_goes_on():
    ours: list[str] = []
    with cProfile.Profile() as profile:
        watch_calls(listen_to(ours), meant)
        meant()
    profile.create_stats()
    stats = profile.stats  # type: ignore[attr-defined]
    counts = {name: entry[0] for (_, _, name), entry in stats.items()}
    assert (ours.count("call meant"), counts["meant"]) == (1, 1 + BESIDE)
    assert sys.getprofile() is None


def test_it_comes_back_where_what_is_watched_fails():
    def fail() -> None:
        raise ValueError("mine")

    hook = listen_to([])
    sys.setprofile(hook)
    try:
        with pytest.raises(ValueError, match="mine"):
            watch_calls(listen_to([]), fail)
        assert sys.getprofile() is hook
    finally:
        sys.setprofile(None)


def test_what_is_watched_is_seen_and_nothing_of_the_watching():
    seen: list[str] = []
    watch_calls(listen_to(seen), meant)
    assert [text for text in seen if text.startswith("call")] == ["call meant"]
