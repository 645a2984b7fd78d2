"""A machine that is full: what cannot be written or held costs its part, never the rest."""

import errno

import pytest

import ftax
from ftax import RunnerError
from ftax.errors import attempt, describe, is_out_of_memory, name_faults
from ftax.timing.plan import Plan

QUICK = Plan(rounds=2, warmup=1, round_ms=1.0)
FULL = OSError(errno.ENOSPC, "No space left on device", "there")


def test_python_says_nothing_of_memory_that_ran_out_so_the_remedy_says_all():
    assert is_out_of_memory(MemoryError())
    assert describe(MemoryError()).startswith("out of memory; choose a smaller batch")


@pytest.mark.parametrize("error", [FULL, MemoryError()])
def test_what_a_full_machine_raises_is_named_like_what_torch_raises(error):
    with (
        pytest.raises(RunnerError, match=r"aoti could not be prepared: (out of|.*No space)"),
        name_faults("aoti could not be prepared"),
    ):
        raise error

    def fail():
        raise error

    assert isinstance(attempt(fail), RunnerError)


def test_a_runtime_that_finds_no_room_is_listed_and_the_others_stand(mlp, monkeypatch):
    def fail(*arguments, **options):
        raise FULL

    monkeypatch.setattr("ftax.runtimes.compilers.torchscript._make_file", fail)
    receipt = ftax.tax(mlp, runtimes=["torchscript"], operators=False, plan=QUICK)
    assert {item.runtime for item in receipt.unavailable} == {"torchscript"}
    assert all("No space left on device" in item.reason for item in receipt.unavailable)
    assert len(receipt.rungs) == 3
