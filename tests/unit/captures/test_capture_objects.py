"""Objects of tensors among the arguments: a new one of the same shape is the same call."""

import dataclasses
import enum
import gc
import pathlib
import types
import weakref
from collections import OrderedDict, UserDict, namedtuple
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ftax
from ftax import _core
from ftax.steps.input_trees import is_data, list_leaves, map_leaves
from support.small_models import normal

pytestmark = pytest.mark.usefixtures("record_at_once")


class Batch:
    def __init__(self, seed: int) -> None:
        self.x, self.count, self.names = normal(3, 4, seed=seed), 5, ["a", "b"]


class Slotted:
    __slots__ = ("__weakref__", "count", "x")

    def __init__(self, seed: int) -> None:
        self.x, self.count = normal(3, 4, seed=seed), 5


@dataclasses.dataclass(slots=True, frozen=True)
class Frozen:
    x: Tensor
    count: int = 5


class Dictionary(dict[str, Any]):
    """As transformers' outputs are: items and attributes."""


class Storage:
    def __init__(self, parent: Any, x: Tensor) -> None:
        self.parent = weakref.ref(parent)
        self.mapping = {"x": x}


class Graph:
    """As graphs of torch_geometric are: a storage that knows the graph it is of."""

    def __init__(self, seed: int) -> None:
        self.storage = Storage(self, normal(3, 4, seed=seed))

    @property
    def x(self) -> Tensor:
        parent: Graph = self.storage.parent()
        return parent.storage.mapping["x"]

    @property
    def count(self) -> int:
        return 5


def make_dictionary(seed: int) -> Any:
    made = Dictionary(x=normal(3, 4, seed=seed))
    made.count = 5  # type: ignore[attr-defined]
    return made


def make_user_dictionary(seed: int) -> Any:
    made: Any = UserDict(x=normal(3, 4, seed=seed))
    made.count = 5
    return made


class Ordered(OrderedDict[str, Any]):
    count = 5


MAKERS = {
    "an object": Batch,
    "slots": Slotted,
    "a namespace": lambda seed: types.SimpleNamespace(x=normal(3, 4, seed=seed), count=5),
    "a dataclass with slots": lambda seed: Frozen(normal(3, 4, seed=seed)),
    "a dictionary with attributes": make_dictionary,
    "a user's dictionary": make_user_dictionary,
    "an ordered dictionary": lambda seed: Ordered(x=normal(3, 4, seed=seed)),
    "an object that its part knows": Graph,
}


def read(batch: Any) -> Tensor:
    x: Tensor = batch["x"] if hasattr(batch, "keys") else batch.x
    return x


LAYER = nn.Linear(4, 4)


def model(batch: Any, scale: float = 1.0) -> Tensor:
    found: Tensor = LAYER(read(batch)).relu() * batch.count * scale
    return found


@pytest.mark.parametrize("kind", MAKERS)
def test_a_new_object_of_the_same_shape_is_no_new_recording(no_grad: None, kind: str) -> None:
    make: Any = MAKERS[kind]
    fast = ftax.capture(model, (make(0),))
    for seed in range(6):
        batch = make(seed)
        assert torch.equal(fast(batch), model(batch))
    assert fast.stats().recorded == 1 and fast.stats().replayed == 6


@pytest.mark.parametrize("kind", MAKERS)
def test_an_object_is_measured(kind: str) -> None:
    make: Any = MAKERS[kind]
    plan = ftax.Plan(rounds=3, warmup=2, round_ms=0.5)
    with torch.no_grad():
        receipt = ftax.tax(model, (make(0),), runtimes=["capture"], plan=plan)
    assert len(receipt.rungs) == 3 and len(receipt.others) == 1
    assert all(m.checks.get("outputs", {"bitwise": True})["bitwise"] for m in receipt.rungs)


def test_other_attributes_are_another_call(no_grad: None) -> None:
    fast = ftax.capture(model, (Batch(0),))
    batch = Batch(1)
    batch.count = 7
    assert torch.equal(fast(batch), model(batch))
    del batch.names
    assert torch.equal(fast(batch), model(batch))
    batch.x = normal(2, 4)
    assert torch.equal(fast(batch), model(batch))
    assert fast.stats().recorded == 4


def test_a_call_that_changes_an_object_it_is_given_is_refused(no_grad: None) -> None:
    def work(batch: Batch) -> Tensor:
        batch.count += 1
        return batch.x * 2

    with pytest.raises(ftax.UnsupportedError, match="given, or another object"):
        ftax.capture(work, (Batch(0),))


class Cache:
    def __init__(self) -> None:
        self.keys = torch.zeros(4, 4)
        self.place = torch.zeros(1, dtype=torch.int64)


def test_an_object_that_the_call_writes_into_is_state(no_grad: None) -> None:
    def decode(x: Tensor, cache: Cache) -> Tensor:
        cache.keys.index_copy_(0, cache.place, x)
        cache.place.add_(1)
        return cache.keys.sum(0) + x

    mine, other = Cache(), Cache()
    fast = ftax.capture(decode, (normal(1, 4), mine))
    for seed in range(4):
        x = normal(1, 4, seed=seed)
        assert torch.equal(fast(x, mine), decode(x, other))
    assert fast.stats().replayed == 4
    assert fast.explain().programs[0].arguments.endswith("one Cache")


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Marked(namedtuple("Marked", "first second")):
    pass


def test_an_attribute_of_a_named_tuple_counts(no_grad: None) -> None:
    def work(pair: Any) -> Any:
        return pair.first + pair.second * getattr(pair, "factor", 1.0)

    def make(seed: int, factor: float) -> Any:
        made = Marked(normal(3, seed=seed), normal(3, seed=seed + 1))
        made.factor = factor
        return made

    fast = ftax.capture(work, (make(0, 2.0),))
    for seed, factor in ((1, 2.0), (2, 3.0), (3, 2.0)):
        given = make(seed, factor)
        assert torch.equal(fast(given), work(given))
    assert fast.stats().recorded == 2
    plain = ftax.capture(work, (Pair(normal(3), normal(3)),))
    assert torch.equal(plain(Pair(normal(3), normal(3))), work(Pair(normal(3), normal(3))))


class Mode(enum.Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("first", "same", "other"),
    [
        (frozenset(("a", "b")), frozenset(("a", "b")), frozenset(("a",))),
        (pathlib.Path("a"), pathlib.Path("a"), pathlib.Path("b")),
        (np.float32(2.0), np.float32(2.0), np.float32(3.0)),
        (np.ones(3), np.ones(3), np.zeros(3)),
        (np.ones(3), np.ones(3), np.ones(3, dtype=np.float32)),
        (range(3), range(3), range(4)),
    ],
    ids=["frozenset", "path", "number of numpy", "array", "array of a dtype", "range"],
)
def test_values_that_are_no_tensors_are_compared(
    no_grad: None, first: Any, same: Any, other: Any
) -> None:
    def work(x: Tensor, value: Any) -> Tensor:
        return x + (value.itemsize if isinstance(value, np.ndarray) else len(str(value)))

    x = normal(3)
    fast = ftax.capture(work, (x, first))
    for value in (same, other, same, first):
        assert torch.equal(fast(x, value), work(x, value))
    assert fast.stats().recorded == 2


def test_an_array_that_its_owner_writes_is_another_call(no_grad: None) -> None:
    table = np.ones(3)

    def work(x: Tensor, table: np.ndarray[Any, Any]) -> Tensor:
        return x * torch.from_numpy(table)

    x = normal(3).double()
    fast = ftax.capture(work, (x, table))
    first = table.copy()
    table[:] = 5
    assert torch.equal(fast(x, first), x)
    assert torch.equal(fast(x, table), x * 5)
    assert torch.equal(fast(x, first), x)


def test_what_acts_is_no_data() -> None:
    batch = Batch(0)
    assert is_data(batch) and is_data(Graph(0)) and is_data([batch][0])
    batch.layer = LAYER  # type: ignore[attr-defined]
    assert not is_data(batch)
    for other in (LAYER, normal(3), {"x": normal(3)}, types.SimpleNamespace(n=1), print, 3, Batch):
        assert not is_data(other)


def test_a_tree_is_mapped_into_objects_of_the_same_kind() -> None:
    for make in MAKERS.values():
        tree = {"batch": make(0), "n": 3}  # type: ignore[operator]
        twice = map_leaves(lambda _, leaf: leaf * 2 if torch.is_tensor(leaf) else leaf, tree)
        assert type(twice["batch"]) is type(tree["batch"]) and twice["batch"] is not tree["batch"]
        assert torch.equal(read(twice["batch"]), read(tree["batch"]) * 2)
        assert twice["batch"].count == 5 and twice["n"] == 3
        assert len([leaf for _, leaf in list_leaves(tree) if torch.is_tensor(leaf)]) == 1


def test_check_inputs_may_have_any_structure(no_grad: None) -> None:
    x, y = normal(3, 4), normal(3, 4, seed=5)

    def work(given: Any, *, scale: float = 1.0, **more: Tensor) -> Any:
        return {"out": given["x"] * scale + more["bias"]}

    calls = [({"x": item},) for item in (x, y)]
    for scale in (1.0, 2.0):
        main, check = ((call, {"scale": scale, "bias": call[0]["x"]}) for call in calls)
        fast = ftax.capture(work, main, check_inputs=check)
        args, kwargs = main
        assert torch.equal(fast(*args, **kwargs)["out"], work(*args, **kwargs)["out"])
    with pytest.raises(ftax.InvalidArgumentError, match="check_inputs has another structure"):
        ftax.capture(work, main, check_inputs=(calls[0], {"scale": 3.0, "bias": x}))


def test_an_expanded_argument_may_be_compared_after_each_replay(no_grad: None) -> None:
    def work(x: Tensor) -> Tensor:
        return x * 2 if bool((x > 0).any()) else x - 1

    x = torch.ones(3, 1).expand(3, 4)
    fast = ftax.capture(work, x, on_host_read="check")
    assert torch.equal(fast(x), x * 2)


class Keeps(nn.Module):
    """Keeps its own capture: a cycle through C++."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.fast: Any = None

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def test_a_model_that_keeps_its_own_capture_is_collected(no_grad: None) -> None:
    model = Keeps(1000)
    model.fast = ftax.capture(model, torch.ones(1000))
    model.fast(torch.ones(1000))
    models, weights = weakref.ref(model), weakref.ref(model.weight)
    captures = weakref.ref(model.fast)
    del model
    gc.collect()
    assert models() is None and weights() is None and captures() is None


def test_what_c_plus_plus_holds_is_shown_to_the_collector() -> None:
    class Node:
        pass

    for make in (_hold_by_signature, _hold_by_guards):
        node = Node()
        node.holder = make(node)  # type: ignore[attr-defined]
        found = weakref.ref(node)
        del node
        gc.collect()
        assert found() is None


def _hold_by_signature(node: Any) -> Any:
    return _core.Signature((node, [node]), {})


def _hold_by_guards(node: Any) -> Any:
    guards = _core.Guards()
    guards.add_class(node)
    guards.add_dict(vars(node))
    return guards
