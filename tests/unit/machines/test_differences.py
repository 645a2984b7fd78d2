"""In what environments differ: facts that nobody knows are none, and words name the sides."""

from __future__ import annotations

from dataclasses import replace

from ftax.machines.differences import describe_difference, find_differences
from ftax.machines.environment import collect_environment
from support.claim_results import make_gpu

HERE = collect_environment()


def with_torch(version):
    return replace(HERE, software=replace(HERE.software, torch=version))


def test_sides_with_the_same_value_stand_together():
    found = find_differences(
        {"A": [with_torch("2.11.0")], "B": [with_torch("2.13.0")], "C": [with_torch("2.11.0")]}
    )
    assert found == {"torch": {"A": "2.11.0", "B": "2.13.0", "C": "2.11.0"}}
    assert (
        describe_difference("torch", found["torch"]) == "torch is 2.11.0 for A, C and 2.13.0 for B"
    )


def test_what_one_side_does_not_know_is_no_difference():
    gpu = replace(HERE, gpu=make_gpu("NVIDIA H100"))
    assert find_differences({"a": [HERE], "b": [gpu]}) == {}
    other = replace(HERE, gpu=replace(make_gpu("NVIDIA A100"), driver="2.0"))
    assert find_differences({"a": [gpu], "b": [other]}, ("the driver",)) == {
        "the driver": {"a": "1.0", "b": "2.0"}
    }


def test_the_ftax_that_measured_is_its_version_commit_and_changes():
    source = replace(HERE.source, commit="a" * 40, dirty=True)
    clean = replace(HERE.source, commit="b" * 40, dirty=False)
    sides = {"a": [replace(HERE, source=source)], "b": [replace(HERE, source=clean)]}
    told = find_differences(sides)["ftax"]
    assert told["a"].endswith(f" at {'a' * 10} with changes")
    assert told["b"].endswith(f" at {'b' * 10}")
