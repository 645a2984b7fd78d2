"""Iterations of sequences that are made up."""

from __future__ import annotations

import numpy as np
import pytest
from ftax_run.period import Period, find_period

LAYER = np.arange(12)
MODEL = np.concatenate([np.arange(100, 105), np.tile(LAYER, 12)])  # a head, and 12 equal layers


def repeat(length: int, count: int) -> Period:
    return Period(length, (tuple(range(0, length * count + 1, length)),), np.empty(0))


@pytest.mark.parametrize(("length", "count"), [(2, 3), (10, 3), (10, 20), (1000, 4), (7, 5000)])
def test_exact_repetition(length: int, count: int) -> None:
    found = find_period(np.tile(np.arange(length) + 5, count))
    assert found == repeat(length, count)
    assert found.count == count


@pytest.mark.parametrize("more", [1, 4, 9])
def test_a_part_of_an_iteration_at_the_end(more: int) -> None:
    found = find_period(np.tile(np.arange(10), 21)[: 200 + more])
    assert found is not None
    assert (found.length, found.count) == (10, 20)


@pytest.mark.parametrize("turned", [0, 3, 70])
def test_equal_layers_are_no_iteration(turned: int) -> None:
    found = find_period(np.roll(np.tile(MODEL, 20), turned))
    assert found is not None
    assert (found.length, found.count) == (len(MODEL), 20)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("piece", [np.arange(40), MODEL], ids=["plain", "layers"])
def test_some_work_is_other_work(piece: np.ndarray, seed: int) -> None:
    random = np.random.default_rng(seed)
    symbols = np.tile(piece, 40)
    replaced = random.random(len(symbols)) < 0.05
    symbols[replaced] = random.integers(1000, 2000, replaced.sum())
    found = find_period(symbols)
    assert found is not None
    assert found.length == len(piece)
    assert found.count >= 10  # without a break: where much of an iteration is other work is one


@pytest.mark.parametrize("seed", range(5))
def test_nothing_repeats(seed: int) -> None:
    random = np.random.default_rng(seed)
    assert find_period(random.permutation(3000)) is None
    assert find_period(random.integers(0, 50, 3000)) is None


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_too_little(count: int) -> None:
    assert find_period(np.zeros(count, dtype=np.int64)) is None


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_iterations(count: int) -> None:
    assert find_period(np.tile(np.arange(100), count)) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_warm_up_before_and_an_evaluation_after(seed: int) -> None:
    random = np.random.default_rng(seed)
    step = random.permutation(60) + 100
    before = random.integers(1000, 5000, 400)
    after = np.tile(step[:25], 8)  # of the forward part alone
    found = find_period(np.concatenate([before, np.tile(step, 50), after]))
    assert found is not None
    assert found.length == 60
    assert abs(found.stretches[0][0] - 400) <= 30
    assert abs(found.stretches[-1][-1] - 3400) <= 90
    assert 49 <= found.count <= 51


@pytest.mark.parametrize("count", [6, 100, 5000])
def test_a_single_symbol(count: int) -> None:
    found = find_period(np.full(count, 3))
    assert found == repeat(1, count)


def test_the_numbers_may_be_of_any_size() -> None:
    names = np.array([2**63 + 1, 5, 2**64 - 1, 0], dtype=np.uint64)
    assert find_period(np.tile(names, 10)) == repeat(4, 10)
    assert find_period(np.tile(np.array([-3, 2, -(2**62)]), 10)) == repeat(3, 10)


def test_a_long_sequence_is_not_looked_at_as_a_whole() -> None:
    found = find_period(np.tile(np.arange(500), 1000))
    assert found is not None
    assert found.length == 500
    assert found.count >= 200


def look_now_and_then(count: int, layers: int, every: int, start: int) -> np.ndarray:
    """Iterations of a model with equal layers; after some the program looks at it."""
    layer = np.random.default_rng(0).integers(0, 12, 25)
    model, look = [np.arange(100, 103), *[layer] * layers, np.arange(200, 204)], np.arange(300, 305)
    pieces: list[np.ndarray] = []
    for number in range(start, start + count):
        pieces += [*model, *([look] if number % every == every - 1 else [])]
    return np.concatenate(pieces)


@pytest.mark.parametrize("count", [8, 12, 22, 60])
@pytest.mark.parametrize("start", [0, 7, 9])
@pytest.mark.parametrize("layers", [12, 24])
def test_a_look_now_and_then_is_part_of_an_iteration(count: int, start: int, layers: int) -> None:
    symbols = look_now_and_then(count, layers, 10, start)
    found = find_period(symbols)
    assert found is not None
    assert found.length == 25 * layers + 7
    assert found.count >= count - 1
    lengths = np.diff(found.stretches[0]).tolist()
    assert {*lengths} <= {found.length, found.length + 5}  # without a look, and with it
    assert lengths.count(found.length + 5) >= len(lengths) // 10 - 1


@pytest.mark.parametrize("count", [10, 20, 40, 80])
@pytest.mark.parametrize("start", [0, 5, 31])
def test_kernels_that_are_chosen_by_length(count: int, start: int) -> None:
    """Tokens of a model with six layers; six kernels of a layer vary with the length so far."""
    chosen = {12: 2, 13: 2, 20: 4, 21: 4, 22: 8, 25: 16}
    pieces: list[int] = []
    for length in range(start, start + count):
        layer = list(range(10, 53))
        for place, every in chosen.items():
            layer[place] = 200 + 20 * place + length % every
        pieces += [1, 2, 3, *layer * 6, 4, 5, 6, 7]
    found = find_period(np.array(pieces))
    assert found is not None
    assert found.length == 265
    assert found.count >= 0.8 * count


@pytest.mark.parametrize("count", [5, 20, 30])
@pytest.mark.parametrize(
    "piece",
    [
        [1, *[10, 11] * 12, 2],
        [*range(100, 132), *[50, 51, 52, 53] * 40],
        [*range(100, 115), *[50] * 85],
        [*range(100, 110), *[*range(20)] * 24, *range(200, 210)],
    ],
    ids=["a small model", "an optimizer", "one kernel", "layers"],
)
def test_equal_parts_whose_length_divides_an_iteration(piece: list[int], count: int) -> None:
    found = find_period(np.tile(piece, count))
    assert found is not None
    assert found.length == len(piece)
    assert found.count >= count - 1


def test_what_comes_more_often_makes_iterations_of_several() -> None:
    found = find_period(look_now_and_then(60, 12, 3, 0))
    assert found is not None
    assert (found.length, found.count) == (3 * 307 + 5, 20)


@pytest.mark.parametrize(
    ("symbols", "length"),
    [
        (np.concatenate([*[np.arange(20)] * 50, [999], *[np.arange(20)] * 50]), 20),
        (np.concatenate([*[np.arange(20)] * 50, np.arange(19), *[np.arange(20)] * 50]), 20),
        (np.concatenate([*[np.arange(40)] * 50, np.arange(1000, 1040), *[np.arange(40)] * 50]), 40),
        (np.tile([*range(100, 130), *[*LAYER] * 48, *range(200, 210)], 8), 616),
        (np.append(np.tile([0, 1], 500), 2), 2),
        (np.append(np.tile([0, 1, 1, 0, 1], 200), 2), 5),
    ],
    ids=["one more", "one less", "another one", "many layers", "two names", "few names"],
)  # fmt: skip
def test_one_thing_that_is_other_changes_no_length(symbols: np.ndarray, length: int) -> None:
    found = find_period(symbols)
    assert found is not None
    assert found.length == length
    assert found.size > 0.45 * len(symbols)


@pytest.mark.parametrize("seed", range(5))
def test_iterations_of_hardly_any_of_the_work_are_none(seed: int) -> None:
    random = np.random.default_rng(seed)
    step = random.permutation(30) + 10_000
    symbols = np.concatenate([random.permutation(3000), *[step] * 5, random.permutation(3000)])
    assert find_period(symbols) is None


@pytest.mark.parametrize("turned", [0, 5, 33])
@pytest.mark.parametrize("piece", [np.arange(40), MODEL], ids=["plain", "layers"])
def test_stretches_beside_the_longest(piece: np.ndarray, turned: int) -> None:
    """Of what is between evaluations two iterations are too few to count."""
    length, other = len(piece), np.arange(1000, 1030)
    usual = np.roll(piece, turned)
    parts = [*[usual] * 8, other, *[usual] * 20, other, usual, usual, other, *[usual] * 5]
    symbols = np.concatenate(parts)
    found = find_period(symbols)
    assert found is not None
    assert found.length == length
    first, longest, last = found.stretches
    assert len(first) - 1 in (7, 8)
    assert len(longest) - 1 in (19, 20)
    assert len(last) - 1 in (4, 5)
    assert 0 <= first[0] < length
    assert first[-1] <= 8 * length + 8
    assert len(symbols) - 5 * length - 8 <= last[0]


def test_stretches_of_iterations_that_differ_a_little() -> None:
    """In the first stretch three pieces of 41 are other ones."""
    usual, like = np.arange(41), np.arange(41)
    like[[5, 20, 33]] = 70
    found = find_period(np.concatenate([*[like] * 20, np.arange(100, 190), *[usual] * 40]))
    assert found is not None
    assert [len(starts) - 1 for starts in found.stretches] in ([20, 40], [19, 40])


def test_short_texts_together_are_enough() -> None:
    random = np.random.default_rng(0)
    token, prompt = np.arange(41), np.arange(1000, 1050)
    texts = [[prompt, *[token] * int(count)] for count in random.integers(20, 90, 30)]
    found = find_period(np.concatenate([piece for text in texts for piece in text]))
    assert found is not None
    assert found.length == 41
    assert found.count > 0.9 * sum(len(text) - 1 for text in texts)


@pytest.mark.parametrize("seed", range(40))
def test_an_evaluation_by_the_same_kernels_comes_first(seed: int) -> None:
    random = np.random.default_rng(seed)
    step = random.integers(0, 30, 200)
    evaluation = random.integers(0, 30, random.integers(200, 900))
    found = find_period(np.concatenate([evaluation, *[step] * 20]))
    assert found is not None
    assert found.length == 200
    assert found.count >= 18


@pytest.mark.parametrize(("length", "more"), [(41, 2), (120, 6), (291, 12)])
def test_interruptions_that_come_again_make_no_long_iteration(length: int, more: int) -> None:
    """Texts of 25, 35 and 30 tokens. Each tenth token has a little more."""
    token, look, prompt = np.arange(length), np.arange(5000, 5000 + more), np.arange(1000, 1150)
    ten = [*[token] * 10, look]
    texts = [*ten, *ten, *[token] * 5, prompt, *ten * 3, *[token] * 5, prompt, *ten * 3]
    found = find_period(np.concatenate(texts))
    assert found is not None
    assert found.length == length
    assert [len(starts) - 1 for starts in found.stretches] == pytest.approx([25, 35, 30], abs=1)
