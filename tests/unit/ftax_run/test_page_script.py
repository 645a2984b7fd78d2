"""The script of a run's page, in node: what a reader sees, and what clicks and keys do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ftax_run.account import Account, Event
from ftax_run.page import make_page

from support.watched_programs import LOSS, make_account, make_host


def act(account: Account, action: str, folder: Path) -> Any:
    """What a reader sees who does that."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node, which runs the script of the page")
    path = folder / "page.html"
    path.write_text(make_page([account]))
    done = subprocess.run(
        [node, Path(__file__).parent / "page_in_node.js", path, action],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def make_long() -> Account:
    """Two iterations of 500 ns; the device works for 100 ns."""
    account = make_account()
    account.processes[0].timeline = [
        Event("iterations", "iteration", 0.0, 500.0), Event("iterations", "iteration", 500.0, 1e3),
        Event("device stream 7", "_ZN2at6native3addILi8E", 0.0, 100.0),
    ]  # fmt: skip
    return account


def test_a_reader_sees_tables_and_frames(tmp_path: Path) -> None:
    seen = act(make_long(), "nothing", tmp_path)
    assert [frame[3] for frame in seen["frames"]] == [
        "all: 600 µs", "train.py:80 <module>", "train.py:41 step", "nn/loss.py:7 forward",
    ]  # fmt: skip
    assert [frame[2] for frame in seen["frames"]] == [
        "frame package", "frame users", "frame users", "frame package",
    ]  # fmt: skip
    assert [float(frame[1][:-1]) for frame in seen["frames"]] == pytest.approx(
        [100, 500 / 6, 400 / 6, 300 / 6]
    )
    assert (
        "400 µs|67 %|train.py:41 step|C++ below Python|nn/loss.py:7 forward|75 %"
        in (seen["texts"]["#lines table"])
    )
    assert seen["texts"]["#syncs table"] == "count|line|idle that begins in it|1|" + (
        "train.py:41 step|10 µs"
    )
    assert "100 samples of 20 µs" in seen["texts"]["#limits ul"]
    assert seen["texts"]["#timeline h2"] == "The last two iterations"
    assert any(box[:1] == [250] and box[2] == 900 for box in seen["boxes"])  # idle


def test_a_click_enlarges_a_frame_and_escape_shows_all(tmp_path: Path) -> None:
    seen = act(make_long(), "click", tmp_path)
    assert [frame[1] for frame in seen["frames"]] == ["100%"] * 4
    assert seen["focused"] == "nn/loss.py:7 forward"
    before, after = (act(make_long(), action, tmp_path) for action in ("nothing", "escape"))
    assert (after["frames"], after["boxes"]) == (before["frames"], before["boxes"])


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (
            "pointFrame",
            "nn/loss.py:7 forward\n300 µs an iteration, 50 % of exposed idle\n" + LOSS[0],
        ),
        ("pointDevice", "add\n_ZN2at6native3addILi8E\n0.1 µs from 0 µs\ndevice stream 7"),
        ("pointIdle", "The device is idle: 0.9 µs"),
    ],
)
def test_the_pointer_is_told(tmp_path: Path, action: str, words: str) -> None:
    assert act(make_long(), action, tmp_path)["tip"] == words


def test_the_wheel_and_dragging_move_the_timeline(tmp_path: Path) -> None:
    def get_iteration(action: str) -> float:
        """Where the second one begins, in pixels."""
        boxes = act(make_long(), action, tmp_path)["boxes"]
        lefts = [box[0] for box in boxes if box[1] == 26 and box[2] > 1]
        return float(lefts[-1])

    assert get_iteration("nothing") == pytest.approx(650)
    assert get_iteration("wheel") == pytest.approx(650)  # what is pointed at stays
    assert get_iteration("drag") == pytest.approx(700)


def test_another_process_is_chosen(tmp_path: Path) -> None:
    account = make_long()
    account.processes.append(make_host())
    texts = act(account, "choose", tmp_path)["texts"]
    assert texts["#flame h2"] == "Flame graph of the main thread's time, in all"
    assert texts["#sentence"].startswith("No work on a GPU was seen")
    assert "#timeline" not in texts and "#syncs" not in texts


def test_a_page_of_nothing_runs(tmp_path: Path) -> None:
    assert act(Account(["true"]), "nothing", tmp_path)["frames"] == []
