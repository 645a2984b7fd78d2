"""The join, against streams that were recorded on an H100 and an H200."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ftax_run import records
from ftax_run.account import Account, ProcessAccount
from ftax_run.activities import CALL, KERNEL, RECORD
from ftax_run.causes import BLOCKED, CPP, GAP, SYNC
from ftax_run.frames import UNKNOWN, Place, Places
from ftax_run.idle import sort_device
from ftax_run.report import describe
from ftax_run.sampler import SAMPLE
from ftax_run.sums import Sums
from ftax_run.window import Recorded, Waits, Window, analyse, find_iterations

STEP = ("train.py", 12, "step")
STREAMS = Path(__file__).parent / "streams"


class Known(Places):
    """Stacks that were written down."""

    def __init__(self, stacks: dict[int, list[Place]]) -> None:
        super().__init__()
        self._written = stacks

    def list_frames(self, stack: int) -> list[Place]:
        return self._written[stack]


def load(name: str) -> tuple[Recorded, Known]:
    with np.load(STREAMS / f"{name}.npz") as stream:
        records, samples = stream["records"], stream["samples"].view(SAMPLE)
        meta = json.loads(stream["meta"].tobytes())
    into_c = np.zeros(256, dtype=bool)
    into_c[meta["into_c"]] = True
    places: list[Place] = [(file, line, function) for file, line, function in meta["places"]]
    stacks = {int(key): [places[place] for place in found] for key, found in meta["stacks"].items()}
    names = {int(key): name for key, name in meta["names"].items()}
    recorded = Recorded(
        meta["pid"], meta["start"], meta["end"], records, names, samples, into_c,
        np.empty(0, dtype=np.int64),
    )  # fmt: skip
    return recorded, Known(stacks)


def join(name: str) -> Window:
    return place(analyse(*load(name)))


def place(window: Window | None) -> Window:
    """As at the end of a run."""
    assert window is not None
    window.place_waits()
    return window


def test_a_delay_in_an_eager_loop() -> None:
    window = join("eager_planted_1ms")
    lines = {place[1:]: amount / window.count for place, amount in window.sum_lines().items()}
    assert lines[17, "busy"] == pytest.approx(1e6, rel=0.15)
    assert window.work["kernels"] / window.count == pytest.approx(146, abs=0.5)
    assert window.work["launches"] / window.count == pytest.approx(146, abs=0.5)
    assert 0.08 < window.busy / window.wall < 0.14
    # Two synchronisations, of the answer and of the copy of the input that follows at once.
    assert sum(window.syncs.values()) == 2 * window.count
    assert {place[2] for place in window.syncs} <= {"prepare", "post"}


def test_a_delay_before_the_replay_of_a_graph() -> None:
    window = join("graph_planted_half_ms")
    lines = {place[1:]: amount / window.count for place, amount in window.sum_lines().items()}
    assert lines[17, "busy"] == pytest.approx(0.5e6, rel=0.1)
    assert window.wall / window.count == pytest.approx(1.09e6, rel=0.02)
    assert window.busy / window.count == pytest.approx(0.56e6, rel=0.02)
    assert window.work["graphs"] == pytest.approx(window.count, abs=1)


def test_a_program_that_the_device_bounds_is_not_called_idle() -> None:
    window = join("device_bound")
    assert window.busy / window.wall > 0.95
    causes = window.sum_causes()
    assert sum(causes.values()) - causes[GAP] < 0.01 * window.wall


def test_backward_is_of_the_line_that_calls_it() -> None:
    recorded, places = load("accumulate")
    window = analyse(recorded, places)
    assert window is not None
    (line, _), *_ = window.sum_lines().list_largest()
    assert line[2].endswith("micro_batch")
    assert line[0] == "accumulate.py"


def test_tokens_on_both_sides_of_a_prompt_are_iterations() -> None:
    recorded, _ = load("generate")
    stretches, kinds = find_iterations(recorded, sort_device(recorded.records))
    assert kinds.total() == 266
    assert [len(bounds) - 1 for bounds in stretches] == [7, 15]
    (before, after), window = stretches, join("generate")
    assert window.count == 22
    assert window.wall == before[-1] - before[0] + after[-1] - after[0]
    assert before[-1] < after[0] - 5_000_000  # a token and the prompt are in neither
    assert window.work["kernels"] / window.count == pytest.approx(265, abs=0.5)
    assert sum(window.syncs.values()) == window.count


def test_a_window_with_an_interruption_is_one_part() -> None:
    window = join("generate")
    assert window.parts == 1
    for line, amount in window.sum_lines().items():
        assert window.squares[line] == pytest.approx((amount / window.count) ** 2)


def test_idle_beside_iterations_has_its_lines() -> None:
    recorded, places = load("generate")
    window = analyse(recorded, places)
    assert window is not None
    # What is cut off at both ends, a token and the prompt.
    wall = recorded.end - recorded.start - window.wall
    lines = {line for line, _ in window.beside}
    assert {line[2] for line in lines} >= {"generate"}
    assert 0.5 * wall < sum(window.beside.values()) < wall


def test_a_device_that_gets_no_more_work_idles() -> None:
    samples = [(50 + 1000 * number, 1) for number in range(100)]
    window = analyse(make_once([(100, 110), (150, 170)], samples, 100_000), STACKS)
    assert window is not None
    assert (window.count, window.wall, window.busy) == (0, 100e6, 30e3)
    assert dict(window.sum_lines()) == {STEP: pytest.approx(100e6 - 30e3)}


def test_what_a_device_does_that_has_no_record_yet_is_left_out() -> None:
    """A kernel is launched at 12 ms, and waits or runs when the window ends."""
    recorded = make_once(
        [(1000, 2000)], [(50 + 1000 * number, 1) for number in range(100)], 100_000
    )
    launch = np.array([(11_990_000, 12_000_000, 9, 7, 9, CALL, 0)], dtype=RECORD)
    recorded.names[9] = "cudaLaunchKernel"
    recorded = replace(recorded, records=np.concatenate([recorded.records, launch]))
    window = analyse(recorded, STACKS)
    assert window is not None
    assert (window.wall, window.busy, window.blocked) == (12e6, 1e6, 0)
    assert sum(window.idle.values()) == pytest.approx(11e6)


def test_launches_are_those_of_the_work() -> None:
    """The host is a whole iteration ahead."""
    recorded = make_waiting([(80_000, 20_000, 1)])
    calls = recorded.records["kind"] == CALL
    recorded.records["start"][calls] -= 1_000_000
    recorded.records["end"][calls] -= 1_000_000
    window = analyse(recorded, STACKS)
    assert window is not None
    assert window.work["launches"] == window.work["kernels"] == 2 * window.count


@pytest.mark.parametrize(
    "name", ["eager_planted_1ms", "graph_planted_half_ms", "device_bound", "accumulate", "generate"]
)
def test_the_parts_are_the_whole(name: str) -> None:
    window = join(name)
    assert window.busy + sum(window.sum_causes().values()) == pytest.approx(window.wall, rel=1e-6)
    assert sum(window.stacks.values()) == pytest.approx(sum(window.idle.values()))


def test_iterations_that_the_program_marks() -> None:
    recorded, places = load("eager_planted_1ms")
    marks = np.arange(10_000_000, 210_000_000, 20_000_000, dtype=np.int64)
    window = analyse(
        Recorded(
            recorded.pid, recorded.start, recorded.end, recorded.records, recorded.names,
            recorded.samples, recorded.into_c, marks,
        ),
        places,
    )  # fmt: skip
    assert window is not None
    assert (window.count, window.wall) == (len(marks) - 1, marks[-1] - marks[0])


def test_what_recording_cost_is_taken_out_where_launches_are() -> None:
    window = join("eager_planted_1ms")
    excess = 0.1 * window.wall
    found = window.take_out(excess)
    assert window.wall - found.wall == pytest.approx(excess, rel=0.05)
    before, after = window.sum_lines(), found.sum_lines()
    (busy,) = (place for place in before if place[2] == "busy")
    # A delay launches nothing, but at its ends.
    assert 1 - after[busy] / before[busy] < 0.05
    assert window.take_out(-excess) is window


def test_what_recording_cost_between_pieces_of_work_is_taken_out_too() -> None:
    window = Window(count=1, wall=1000.0, busy=300.0, gaps=200.0, blocked=400.0)
    window.idle[STEP, "Python"], window.launched[STEP, "Python"] = 100.0, 5.0
    found = window.take_out(250.0)
    assert (found.wall, sum(found.idle.values())) == (750.0, 0.0)
    assert (found.gaps, found.blocked) == (50.0, 400.0)
    assert sum(found.sum_causes().values()) == found.wall - found.busy


def test_without_calls_it_is_the_hosts_until_the_work_begins() -> None:
    recorded, places = load("eager_planted_1ms")
    records = recorded.records[recorded.records["kind"] != 5]
    window = analyse(
        Recorded(
            recorded.pid, recorded.start, recorded.end, records, recorded.names,
            recorded.samples, recorded.into_c, recorded.marks,
        ),
        places,
    )  # fmt: skip
    assert window is not None
    assert window.gaps == 0
    assert window.sum_causes()[SYNC] == 0
    lines = {place[2]: amount / window.count for place, amount in window.sum_lines().items()}
    assert lines["busy"] == pytest.approx(1e6, rel=0.15)


def test_time_in_collectives() -> None:
    recorded, places = load("eager_planted_1ms")
    kernels = recorded.records["kind"] == KERNEL
    symbol = recorded.records["symbol"][kernels][0]
    recorded.names[int(symbol)] = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    window = analyse(recorded, places)
    assert window is not None
    chosen = recorded.records[kernels & (recorded.records["symbol"] == symbol)]
    every = float((chosen["end"] - chosen["start"]).sum())
    assert 0.5 * every < window.collectives <= every


def test_a_look_in_each_tenth_iteration() -> None:
    """Iterations of 101 kernels of 10 us in a row, and 490 us of waiting; 3 kernels for a look."""
    layer = np.random.default_rng(0).integers(10, 20, 8)
    model, look = [1, 2, *[*layer] * 12, 3, 4, 5], [7, 8, 9]
    symbols, starts, at = [], [], 0
    for number in range(31):
        for symbol in (*model, *(look if number % 10 == 9 else [])):
            symbols.append(symbol)
            starts.append(at)
            at += 10_000
        at += 490_000
    device = np.zeros(len(symbols), dtype=RECORD)  # which end within the last iteration
    device["kind"], device["symbol"], device["start"] = KERNEL, symbols, starts
    device["end"] = device["start"] + 10_000
    device["correlation"] = np.arange(len(device))
    names = {number: str(number) for number in range(20)}
    recorded = Recorded(7, 0, at, device[:-60], names, np.empty(0, SAMPLE), np.zeros(256, bool),
                        np.empty(0, int))  # fmt: skip
    window = analyse(recorded, Known({}))
    assert window is not None
    assert window.kinds.total() == len(model)
    assert window.count >= 28
    assert window.wall / window.count == pytest.approx(1.5e6 + 3000, rel=0.002)
    assert window.busy / window.count == pytest.approx(1.01e6 + 3000, rel=0.002)


def test_nothing_on_the_device_is_no_window() -> None:
    recorded, places = load("device_bound")
    empty = Recorded(
        recorded.pid, recorded.start, recorded.end, recorded.records[:0], {}, recorded.samples,
        recorded.into_c, recorded.marks,
    )  # fmt: skip
    assert analyse(empty, places) is None


@pytest.mark.parametrize("name", ["accumulate", "device_bound", "graph_planted_half_ms"])
def test_a_run_that_is_read_again_says_the_same(name: str) -> None:
    account = Account(["train.py"], 0, 100, 20.0, 0, 0, [ProcessAccount(1, windows=[join(name)])])
    again = records.from_record(json.loads(json.dumps(records.to_record(account))))
    assert describe(again) == describe(account)


def make_waiting(sampled: list[tuple[int, ...]], *, late: int = 2_000) -> Recorded:
    """Ten iterations of 1 ms: two kernels of 100 us, where the second begins ``late`` after the
    first, though launched in time, then a wait of 40 us. ``sampled`` are offsets, how long reading
    took, stacks, and whether they changed meanwhile."""
    records, samples = [], []
    for number in range(10):
        base = 1_000_000 * (number + 1)
        second = base + 100_000 + late
        for order, start in enumerate((base, second)):
            launch = 2 * number + order + 1
            called = base - 20_000 + order * 5000
            records += [(called, called + 3000, launch, 7, 1, CALL, 0),
                        (start, start + 100_000, launch, 3, 10 + order, KERNEL, 0)]  # fmt: skip
        records.append((second + 70_000, second + 110_000, 1000 + number, 7, 2, CALL, 0))
        samples += [(second + offset, 0, 7, stack, 0, ord("R"), *(changed or [0]), took)
                    for offset, took, stack, *changed in sampled]  # fmt: skip
    names = {1: "cudaLaunchKernel", 2: "cudaStreamSynchronize", 10: "a", 11: "b"}
    return Recorded(
        7, 0, 12_000_000, np.array(records, dtype=RECORD), names, np.array(samples, dtype=SAMPLE),
        np.zeros(256, bool), np.empty(0, int),
    )  # fmt: skip


def make_once(device: list[tuple[int, int]], samples: list[tuple[int, int]], end: int) -> Recorded:
    """Kernels of different names, from when to when in us, and samples with their stacks."""
    records = [(1000 * start, 1000 * stop, number, 3, number, KERNEL, 0)
               for number, (start, stop) in enumerate(device, 1)]  # fmt: skip
    read = [(1000 * time, 0, 7, stack, 0, ord("R"), 0, 1000) for time, stack in samples]
    names = {number: f"kernel {number}" for number in range(1, 1 + len(device))}
    return Recorded(
        7, 0, 1000 * end, np.array(records, dtype=RECORD), names, np.array(read, dtype=SAMPLE),
        np.zeros(256, bool), np.empty(0, int),
    )  # fmt: skip


OUTER = ("train.py", 30, "<module>")
LATER = ("train.py", 13, "step")
STACKS = Known({1: [STEP, OUTER], 2: [LATER, OUTER], 3: [OUTER]})


def test_a_wait_is_at_the_line_of_samples_that_were_read_within_it() -> None:
    window = analyse(make_waiting([(20_000, 5000, 2), (80_000, 20_000, 1)]), STACKS)
    assert window is not None
    (waits,) = window.waits.values()
    assert (waits.count, dict(waits.within)) == (0, {STEP: window.count})
    place(window)
    assert (dict(window.syncs), window.near_syncs[STEP]) == ({STEP: window.count}, 0)
    assert window.sync_idle[STEP] > 0


def test_a_wait_without_a_sample_is_near_a_line() -> None:
    # The nearest has an outer frame alone: inside of it something changed while it was read.
    window = place(analyse(make_waiting([(100_000, 30_000, 3, 1), (60_000, 5000, 1)]), STACKS))
    assert dict(window.syncs) == {STEP: window.count} == dict(window.near_syncs)


def test_a_wait_is_near_no_line_where_nothing_was_sampled() -> None:
    window = place(analyse(make_waiting([]), STACKS))
    assert dict(window.syncs) == {UNKNOWN: window.count} == dict(window.near_syncs)


@pytest.mark.parametrize(("before_us", "line"), [(8, STEP), (38, LATER)])
def test_a_copy_just_before_a_wait_is_of_the_same_line(before_us: int, line: Place) -> None:
    recorded = make_waiting([(65_000 - (before_us - 8) * 1000, 4000, 1), (60_000, 1000, 2)])
    copies = recorded.records[recorded.records["symbol"] == 2].copy()
    copies["start"] -= before_us * 1000
    copies["end"] = copies["start"] + 7500
    copies["correlation"] += 1000
    copies["symbol"] = 3
    recorded.names[3] = "cudaMemcpyAsync"
    records = np.concatenate([recorded.records, copies])
    window = place(analyse(replace(recorded, records=records), STACKS))
    assert dict(window.syncs) == {line: window.count}
    assert window.near_syncs[line] == (0 if line == STEP else window.count)


def test_windows_together_tell_where_a_wait_is() -> None:
    first = analyse(make_waiting([(60_000, 5000, 2)]), STACKS)
    second = analyse(make_waiting([(80_000, 20_000, 1)]), STACKS)
    assert first is not None
    assert second is not None
    count = first.count + second.count
    first.add(second)
    place(first)
    assert (dict(first.syncs), first.near_syncs[STEP]) == ({STEP: count}, 0)


def test_what_a_window_knows_of_a_wait_is_not_what_others_do() -> None:
    """Two waits in an iteration after work of the same name, each sampled in its own window."""
    first, second = (analyse(make_waiting([(80_000, 20_000, stack)]), STACKS) for stack in (1, 2))
    assert first is not None
    assert second is not None
    first.add(second)
    place(first)
    assert dict(first.syncs) == {STEP: second.count, LATER: second.count}


def test_threads_have_waits_of_their_own() -> None:
    """A sample of one thread says nothing of what another waits for."""
    recorded = make_waiting([(80_000, 20_000, 1)])
    others = recorded.records[recorded.records["symbol"] == 2].copy()
    others["stream"], others["correlation"] = 8, others["correlation"] + 1000
    window = analyse(replace(recorded, records=np.concatenate([recorded.records, others])), STACKS)
    assert window is not None
    assert dict(window.syncs) == {STEP: window.count}
    assert [waits.count for waits in window.waits.values()] == [0, window.count]
    assert dict(place(window).near_syncs) == {UNKNOWN: window.count}


def test_a_thread_of_cpp_that_runs_python_now_and_then_works_for_the_main_one() -> None:
    """Autograd's thread launches each 10 ms, and runs a hook in three of ten rounds of samples."""
    records, samples = [], []
    for start in range(1_000_000, 101_000_000, 10_000_000):
        launch = start // 10_000_000 + 1
        records += [(start - 10_000, start - 5000, launch, 8, 1, CALL, 0),
                    (start, start + 100_000, launch, 3, 10, KERNEL, 0)]  # fmt: skip
    for number in range(100):
        time = 1_000_000 * number + 500_000
        samples.append((time, 0, 7, 2, 0, ord("S"), 0, 1000))
        if number % 10 in (3, 4, 5):
            samples.append((time + 60_000, 0, 8, 1, 0, ord("R"), 0, 1000))
    recorded = Recorded(
        7, 0, 101_000_000, np.array(records, dtype=RECORD), {1: "cudaLaunchKernel", 10: "a"},
        np.array(samples, dtype=SAMPLE), np.ones(256, bool), np.empty(0, int),
    )  # fmt: skip
    window = analyse(recorded, STACKS)
    assert window is not None
    idle = sum(window.idle.values())
    assert idle == pytest.approx(9 * 9.9e6, rel=0.001)
    assert {line for line, _ in window.idle} == {STEP, LATER}
    assert window.idle[STEP, CPP] / idle == pytest.approx(0.3, abs=0.01)
    assert window.idle[LATER, CPP] / idle == pytest.approx(0.7, abs=0.01)


def test_launched_work_that_does_not_begin_waits_for_something() -> None:
    short, long = (
        analyse(make_waiting([(80_000, 20_000, 1)], late=late), STACKS) for late in (2000, 600_000)
    )
    assert short is not None
    assert long is not None
    # 17 us from the call that launches the first until it begins.
    assert (short.gaps / short.count, short.blocked) == (19_000, 0)
    assert (long.gaps / long.count, long.blocked / long.count) == (17_000, 600_000)
    assert long.sum_causes()[BLOCKED] == long.blocked
    account = Account(["train.py"], 0, 100, 20.0, 0, 0, [ProcessAccount(1, windows=[long])])
    long.idle[STEP, "Python"], long.unseen = long.unseen, 0.0
    assert describe(account)[0].startswith(
        "Kept waiting by others: for 60 % of the time work that was launched does not begin"
    )


def test_the_sums_of_waits() -> None:
    waits = Waits(2, 10.0, Sums({STEP: 1.0}), Sums())
    waits.add(Waits(3, 5.0, Sums({STEP: 2.0}), Sums({OUTER: 0.5})))
    assert waits == Waits(5, 15.0, Sums({STEP: 3.0}), Sums({OUTER: 0.5}))
