"""Two ranks capture calls that communicate: each decides alone, and their collectives meet."""

import pytest

from support.communicating import Results, run_communicating


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Of each rank. Two processes, which import torch and train: a quarter of a minute."""
    return run_communicating(tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        *(("tensor_parallel", 20), ("overlapping", 20), ("functional_sum", 20)),
        *(("every_kind", 9), ("in_a_group", 20)),
        *(("ddp", 28), ("ddp_with_views", 28), ("ddp_with_buffers", 28)),
        *(("ddp_that_accumulates", 28), ("ddp_of_small_buckets", 28)),
        ("a_module_inside_of_ddp", 20),
    ],
)
def test_replays_have_the_bits_of_eager(results: Results, name: str, calls: int) -> None:
    for rank in results:
        assert rank[name]["same"]
        assert rank[name]["replayed"] == calls
        assert rank[name]["checked"] >= 3
        assert rank[name]["kinds"] == ["tape"]


def test_a_rank_that_is_refused_meets_one_that_replays(results: Results) -> None:
    first, second = (rank["one_is_refused"] for rank in results)
    assert first["same"] and second["same"]
    assert first["replayed"] == 20
    assert second["replayed"] == 0


def test_a_rank_that_misses_a_guard_meets_one_that_replays(results: Results) -> None:
    first, second = (rank["one_misses_a_guard"] for rank in results)
    assert first["same"] and second["same"]
    assert first["replayed"] == 12
    assert second["replayed"] == 9


def test_a_rank_that_checks_more_calls_does_not_communicate_more(results: Results) -> None:
    first, second = (rank["one_checks_more"] for rank in results)
    assert first["same"] and second["same"]
    assert first["checked"] > second["checked"]


def test_a_difference_is_the_matter_of_the_rank_that_finds_it(results: Results) -> None:
    first, second = (rank["one_check_finds_a_difference"] for rank in results)
    assert first["same"] and second["same"]
    assert first["replayed"] == 24
    assert second["replayed"] < 8
    assert second["original"]["a replay was wrong"] > 0
