"""Where delays are planted in programs that `ftax run` is tried on, and how much has to show."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import run_delays
from run_delays import DELAY_US, PROGRAMS, find_places, list_figures, list_programs


@pytest.mark.parametrize("name", list_programs())
def test_each_program_has_five_places(name):
    places = find_places(PROGRAMS / f"{name}.py")
    assert sorted(places) == [0, 1, 2, 3, 4]
    assert len({line for line, _ in places.values()}) == 5
    assert max(share for _, share in places.values()) == (0.1 if name == "device_bound" else 1)


def test_a_mark_says_how_much_of_a_delay_shows(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("plant(0)\nplant(1)  # hidden\nplant(2)  # exposed 1/2: why\n")
    assert find_places(program) == {0: (1, 1), 1: (2, 0), 2: (3, 0.5)}


@pytest.mark.parametrize(("increase_us", "near"), [(449, 0), (451, 100), (549, 100), (551, 0)])
def test_half_a_delay_is_wanted_where_half_shows(increase_us, near):
    plant = {"line": 3, "largest": 3, "hidden": False, "exposed_us": DELAY_US / 2}
    parts = {"program": {"iteration_error": 0.0,
                         "plants": {0: plant | {"increase_us": increase_us}}}}  # fmt: skip
    figures = {item.name: item.value for item in list_figures(parts)}
    assert figures["delays found to 10 % or 30 us"] == near


def test_a_program_is_watched_as_it_is_and_then_each_place(monkeypatch):
    """A line that takes as long in a run without a delay has not grown."""
    watched = [{30: 10.0}, {30: 2000.0, 31: 6.0}, {30: 15.0}]
    calls, idle_us = [], [*watched, *[{30: 1900.0, 31: 1052.0}] * 5]
    process = Mock(correct=lambda: (Mock(wall=4_000_000, count=2), 0.01))
    account = Mock(find_main=lambda: process)

    def watch(folder, words):
        calls.append(words[-1] if "--plant" in words else "")
        return {"iteration_us": 2000.0, "delay_us": 1050.0}, account

    monkeypatch.setattr(run_delays, "watch", watch)
    monkeypatch.setattr(run_delays, "describe", lambda account: [])
    monkeypatch.setattr(run_delays, "sum_lines", lambda account, program: idle_us.pop(0))
    found = run_delays.take("generate", 3.0)
    assert calls == ["", "", "", *map(str, found["plants"])]
    assert found["iteration_error"] == 0
    plants = found["plants"].values()
    assert {plant["largest"] for plant in plants} == {31}
    assert {plant["largest_us"] for plant in plants} == {1052.0 - 6.0}
    assert {plant["exposed_us"] for plant in plants if not plant["hidden"]} == {1050.0}
