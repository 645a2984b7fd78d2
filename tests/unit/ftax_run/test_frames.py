"""What is kept of stacks, and what is forgotten."""

from __future__ import annotations

import struct

import pytest
from ftax_run.frames import REST, UNKNOWN, Place, Places, name_place
from ftax_run.sampler import Code

LINES = b"\x80\x00"  # one instruction, on the first line


def learn(places: Places, first: int) -> None:
    """Two stacks of a function and its caller, numbered from ``first``."""
    codes = {
        first: Code(first, 10, "train.py", "main", LINES),
        first + 1: Code(first + 1, 20, "/lib/python3.12/queue.py", "get", LINES),
    }
    both = struct.pack("<4I", first + 1, 0, first, 0)
    places.learn({first: both, first + 1: both[8:]}, codes)


MAIN: Place = ("train.py", 10, "main")
GET: Place = ("/lib/python3.12/queue.py", 20, "get")


def test_a_stack() -> None:
    places = Places()
    learn(places, 1)
    assert places.list_frames(1) == (GET, MAIN)
    assert places.list_outer(1) == (MAIN, GET)
    assert places.find_users(1) == MAIN
    assert places.find_leaf(1) == GET
    assert places.find_leaf(2) == MAIN


def test_what_is_forgotten_is_gone_but_for_what_waits() -> None:
    places = Places()
    learn(places, 1)
    learn(places, 11)
    places.forget(2, 2, [1])
    assert places.list_frames(1) == (GET, MAIN)
    assert places.find_users(1) == MAIN
    assert places.list_frames(11) == (GET, MAIN)
    with pytest.raises(KeyError):
        places.list_frames(2)
    places.forget(12, 12, [])
    for stack in (1, 11):
        with pytest.raises(KeyError):
            places.list_frames(stack)


def test_equal_places_stay_one_object() -> None:
    places = Places()
    learn(places, 1)
    before = places.find_users(1)
    for first in (11, 21, 31):
        places.forget(first - 9, first - 9, [])
        learn(places, first)
        assert places.find_users(first) is before


def test_names() -> None:
    assert name_place(MAIN) == "train.py:10 main"
    assert name_place(GET) == "python3.12/queue.py:20 get"
    assert name_place(UNKNOWN) == "?"
    assert name_place(REST) == "other lines"
