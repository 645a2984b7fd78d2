"""What a capture is made of: guards, signatures, code that ran."""

import gc
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import ftax
from ftax import _core
from ftax.captures.executed import watch_code
from ftax.captures.guards import guard_state
from ftax.captures.names import list_names
from support.captures import assert_same

pytestmark = pytest.mark.usefixtures("record_at_once")


def test_swapped_memory_of_a_graph_is_read_before_it_is_written(no_grad: None):
    first, second, other = torch.ones(3), torch.full((3,), 2.0), torch.full((3,), 3.0)
    own = _core.OwnInputs([first, second])
    assert own.take([first, other]) == [1] and second.tolist() == [3.0] * 3
    given = [second, first]  # what was lent, the other way round
    assert own.take(given) == [0, 1]
    assert (first.tolist(), second.tolist()) == ([3.0] * 3, [1.0] * 3)
    own.give_back(given, [0, 1])
    assert (first.tolist(), second.tolist()) == ([1.0] * 3, [3.0] * 3)
    own.take([second[:1].expand(3), second])
    assert (first.tolist(), second.tolist()) == ([3.0] * 3, [3.0] * 3)


def test_a_dictionary_that_changes_all_the_time_is_looked_at_each_time():
    steady, restless = {"a": 1}, {"read": 1, "i": 0}
    guards, others = _core.Guards(), _core.Guards()
    for item in (guards, others):
        item.add_dict(steady)
        item.add_items(restless, ["read"])
    for i in range(40):  # as the globals of a script with a loop
        restless["i"] = i
        assert guards.find_change() == others.find_change() == -1
    restless["read"] = 2
    assert guards.find_change() == others.find_change() == 1
    restless["read"] = 1
    assert guards.find_change() == others.find_change() == -1
    del guards
    late = _core.Guards()
    late.add_items(restless, ["read"])
    steady["b"] = 1
    assert others.find_change() == 0
    del others, steady["b"]
    restless["read"] = 3
    assert late.find_change() == 0


def test_attributes_are_seen_to_change_by_whatever_instruction_sets_them():
    class Holder:
        def __init__(self) -> None:
            self.value, self.other = 0, 1

    def change(item: Holder, to: int) -> None:
        item.value = to

    item, kind = Holder(), Holder
    guards = _core.Guards()
    guards.add_dict(vars(item))
    guards.add_class_items(kind, ["constant"])
    for i in range(1000):  # until the interpreter has made it as fast as it can
        change(item, i % 2)
        assert guards.find_change() == (0 if i % 2 else -1)
    change(item, 0)
    item.__dict__.update(value=2)
    assert guards.find_change() == 0
    setattr(item, "value", 0)  # noqa: B010 - another way in
    assert guards.find_change() == -1
    kind.constant = 1  # type: ignore[attr-defined]
    assert guards.find_change() == 1


def test_guards_notice_each_kind_of_change():
    guards = _core.Guards()
    items, whole, listed = {"a": 1.0}, {"b": 2}, [1, 2]
    held, tensor = {1}, torch.ones(2)
    value = 1

    def read() -> int:
        return value

    (cell,) = read.__closure__ or ()
    guards.add_items(items, ["a", "missing"])
    guards.add_dict(whole)
    guards.add_sequence(listed)
    guards.add_set(held)
    guards.add_cell(cell)
    guards.add_tensor(tensor)
    assert guards.find_change() == -1
    items["a"] = 1.0 + 0.0  # another object of the same value
    assert guards.find_change() == -1
    items["other"] = 3
    assert guards.find_change() == -1
    items["missing"] = 0
    assert guards.find_change() == 0
    assert guards.find_key(0) == "missing"
    del items["missing"]
    whole["b"] = 3
    assert guards.find_change() == 1
    whole["b"] = 2
    listed.append(3)
    assert guards.find_change() == 2
    listed.pop()
    held.add(2)
    assert guards.find_change() == 3
    held.discard(2)
    value = 2
    assert guards.find_change() == 4
    value = 1
    tensor.data = torch.zeros(2)
    assert guards.find_change() == 5


def test_signatures_tell_calls_apart():
    x, y = torch.ones(2), torch.ones(2)
    signature = _core.Signature((x, y, 1), {"flag": True})
    assert signature.match((y, x, 1), {"flag": True}) == [y, x]
    assert signature.match((x, x, 1), {"flag": True}) is None  # one tensor twice
    assert signature.match((x, x[:], 1), {"flag": True}) is None  # one memory
    assert signature.match((x, y, True), {"flag": True}) is None
    assert signature.match((x, y, 1), {"flag": 1}) is None
    assert signature.match((x, torch.ones(3), 1), {"flag": True}) is None
    assert signature.match((x, y, 1), {}) is None
    assert signature.fill([y, x]) == ((y, x, 1), {"flag": True})
    assert "flag=True" in signature.describe()


def test_equal_codes_of_two_functions_are_two():
    first, second, third = ({"scale": scale} for scale in (2, 3, 4))
    for space in (first, second, third):
        exec("def read():\n    return scale", space)
    reads = [space["read"] for space in (first, second, third)]
    assert len({read.__code__ for read in reads}) == 1
    _, executed = watch_code(lambda: reads[0]() + reads[1]())
    found = executed.list_functions()
    assert [read in found for read in reads] == [True, True, False]
    for space in (first, second):
        state = guard_state({}, executed, "cpu", functions=found, has_autograd=False)
        space["scale"] += 1
        assert "scale" in (state.find_change() or "")


def test_code_that_ran_is_found_with_its_names():
    class Holder:
        scale = 3.0

    holder = Holder()

    def inner() -> float:
        return holder.scale

    def outer() -> float:
        return inner()

    result, executed = watch_code(outer)
    assert result == 3.0
    functions = executed.list_functions()
    assert {inner, outer} <= set(functions)
    assert "scale" in list_names(executed.codes)
    state = guard_state({"outer": outer}, executed, "cpu", functions=functions, has_autograd=False)
    assert state.find_change() is None
    Holder.scale = 4.0
    assert "scale" in (state.find_change() or "")


def test_what_a_collection_of_garbage_calls_is_no_part_of_a_call(no_grad: None):
    seen: list[str] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        held = [[index] for index in range(3000)]  # many enough for a collection
        return x * len(held)

    def watch(phase: str, _: dict[str, int]) -> None:
        seen.append(phase)

    gc.callbacks.append(watch)
    try:
        run(torch.ones(3))
        assert seen
        captured = ftax.capture(run, torch.ones(3))
        for _ in range(3):
            seen.append("changed")
            assert_same(captured, run, torch.randn(3))
        assert gc.isenabled()
    finally:
        gc.callbacks.remove(watch)
    assert captured.explain().calls == {"recorded": 1, "replayed": 3}


class Pair(NamedTuple):
    left: torch.Tensor
    scale: float


@dataclass
class Batch:
    x: torch.Tensor
    name: str = "batch"


def test_named_tuples_and_dataclasses_are_walked(no_grad: None):
    def run(pair: Pair, batch: Batch) -> torch.Tensor:
        return pair.left * pair.scale + batch.x + len(batch.name)

    def make(scale: float = 2.0, name: str = "batch") -> tuple[Pair, Batch]:
        return Pair(torch.randn(3), scale), Batch(torch.randn(3), name)

    captured = ftax.capture(run, make())
    for _ in range(2):
        assert_same(captured, run, *make())
    assert_same(captured, run, *make(scale=3.0))
    assert_same(captured, run, *make(name="other"))
    assert captured.explain().calls == {"recorded": 3, "replayed": 4}


def test_one_refusal_is_of_one_kind_of_call(no_grad: None):
    def run(x: torch.Tensor, branch: bool) -> torch.Tensor:
        return x * 2 if not branch or x.sum() > 0 else x - 1

    captured = ftax.capture(run, (torch.ones(2), False), on_refusal="eager")
    with pytest.warns(UserWarning, match="without a capture"):
        assert_same(captured, run, -torch.ones(2), True)
    assert_same(captured, run, torch.ones(3), False)
    assert_same(captured, run, -torch.ones(2), True)
    assert captured.explain().calls == {"recorded": 2, "replayed": 1, "eager": 2}


@pytest.mark.slow
def test_the_example_trains_a_model_to_the_same_losses():
    example = Path(__file__).parents[3] / "examples" / "char_model" / "train.py"
    done = subprocess.run(
        [sys.executable, example, "--steps", "12"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "12 losses, the same bits" in done.stdout


def test_a_weight_may_be_an_argument(no_grad: None):
    weights = [torch.ones(3), torch.full((3,), 5.0)]

    def run(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + weights[0]

    captured = ftax.capture(run, torch.randn(3))
    for given in (torch.randn(3), weights[0], weights[1], weights[0][:]):
        assert_same(captured, run, given)
    with pytest.raises(ftax.UnsupportedError):  # it would take every argument for the weight
        ftax.capture(run, weights[0])
    checked = ftax.capture(
        lambda x: run(x) if bool(x.isfinite().all()) else x, weights[0], on_host_read="check"
    )
    for given in (weights[0], torch.randn(3), weights[1]):
        assert_same(checked, run, given)


def test_an_argument_that_is_an_attribute_too_is_told_by_which_it_is(no_grad: None):
    class Holder:
        def __init__(self) -> None:
            self.batch, self.other = torch.ones(3), torch.zeros(3)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x + (self.batch.shape[0] + self.other.shape[0])

    holder = Holder()
    captured = ftax.capture(holder.run, holder.batch)
    for given in (holder.batch, holder.other, torch.randn(3), holder.batch):
        assert_same(captured, holder.run, given)


FROZEN = """
import contextlib, gc, torch, ftax

def make():
    factor = 1.0

    @contextlib.contextmanager
    def lend():
        yield factor

    def put(value):
        nonlocal factor
        factor = value

    def work(x):
        with lend() as lent:
            return x * lent

    return work, put

work, put = make()
gc.collect()
gc.freeze()
frozen = gc.get_freeze_count()
with torch.no_grad():
    captured = ftax.capture(work, (torch.ones(2),))
    put(3.0)
    print(captured(torch.ones(2)).tolist(), gc.get_freeze_count() >= frozen)
"""


def test_functions_that_were_frozen_are_found():
    done = subprocess.run([sys.executable, "-c", FROZEN], capture_output=True, text=True)
    assert done.stdout.strip() == "[3.0, 3.0] True", done.stderr
