"""A capture is the original bit for bit, or is refused in words, or says what it misses.

Nothing of ftax judges here, and a scene is played twice from its beginning, so a capture that
leaves a trace is found as well as one that computes something else.
"""

from __future__ import annotations

import contextlib
import copy
import cProfile
import functools
import gc
import pickle
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hostile import captures as _captures  # noqa: F401  # enters the table
from hostile.captures.table import TABLE, Case, Given, Scene
from hostile.facts import describe
from torch import nn
from torch.utils import _pytree as pytree

import ftax
from support.small_models import normal

pytestmark = pytest.mark.usefixtures("alone", "record_at_once")
CASES = [pytest.param(case, id=name, marks=case.marks) for name, case in TABLE.items()]
_CALLS = 6  # two, a disturbance, two, a disturbance, two


def test_the_table_is_long() -> None:
    assert len(TABLE) >= 60


@pytest.mark.filterwarnings("ignore:replays of the capture of")
@pytest.mark.parametrize("case", CASES)
def test_nothing_silently_wrong(case: Case) -> None:
    expected = play(case.make(), None)
    scene = case.make()
    # What is frozen stays unseen only without checks.
    options = {"audit": False} if case.outcome == "frozen" else {}
    taken = Taken(scene, {**options, **case.options})
    found = play(scene, taken)
    difference = find_difference(expected, found)
    if case.outcome == "frozen":
        assert taken.refusal == ""
        listed = "\n".join(text for facts in taken.explain().programs for text in facts.frozen)
        assert case.words in listed
        assert difference
        return
    assert difference == "" or case.moves
    if case.outcome == "refused":
        assert case.words in taken.refusal
        return
    assert taken.refusal == ""
    calls = taken.explain().calls
    assert calls.get("replayed", 0) >= case.replayed
    if case.recorded is not None:
        assert calls["recorded"] == case.recorded


FROZEN = [pytest.param(case, id=name) for name, case in TABLE.items() if case.outcome == "frozen"]


@pytest.mark.parametrize("case", FROZEN)
def test_a_check_finds_what_is_frozen(case: Case) -> None:
    """The checks of the 2nd and the 4th call: what is changed behind the second one is found."""
    expected = play(case.make(), None)
    scene = case.make()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = play(scene, Taken(scene, case.options))
    wrong = [a != b for a, b in zip(expected[:-1], found[:-1], strict=True)]
    assert not wrong[3]  # the call that is checked
    if wrong[2]:
        assert any("a check of the capture" in str(item.message) for item in told)
        assert not any(wrong[4:])


class Taken:
    """The original of a scene until it is captured, at its first call, and after a refusal."""

    def __init__(self, scene: Scene, options: dict[str, Any]) -> None:
        self._scene, self._options = scene, options
        self._captured: Any = None
        self.refusal = ""

    def explain(self) -> Any:
        return self._captured.explain()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        what = self._scene.what
        if self.refusal:
            return call_original(what, args, kwargs)
        try:
            if self._captured is None:
                inputs = () if isinstance(what, ftax.Step) else ((args, kwargs),)
                self._captured = capture(what, inputs, self._options)
            return self._call(args, kwargs)
        except ftax.errors.FtaxError as error:
            self.refusal = str(error)
            return call_original(what, args, kwargs)

    def _call(self, args: Any, kwargs: Any) -> Any:
        """What cannot be captured later on is a warning, and the original's result."""
        with warnings.catch_warnings(record=True) as told:
            warnings.filterwarnings("always", ".* called as it is")
            result = self._captured(*args, **kwargs)
        for item in told:
            if "called as it is" in str(item.message):
                self.refusal = str(item.message)
            else:
                warnings.warn(item.message, stacklevel=2)
        return result


def capture(what: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if not inputs:
        return ftax.capture(what, **options)
    return ftax.capture(what, inputs[0], **options)


def call_original(what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return (what.function if isinstance(what, ftax.Step) else what)(*args, **kwargs)


def play(scene: Scene, taken: Callable[..., Any] | None) -> list[Any]:
    """What six calls returned and left behind, by comparable facts."""
    torch.manual_seed(11)
    facts: list[Any] = []
    kept: list[Any] = []
    function = taken or (lambda *args, **kwargs: call_original(scene.what, args, kwargs))
    try:
        for call in range(_CALLS):
            if call in (2, 4):
                scene.disturb(call // 2 - 1)
            given = scene.inputs(call)
            given = given if isinstance(given, Given) else Given(args=given)
            try:
                with scene.around():
                    result = function(*given.args, **given.kwargs)
            except Exception as error:
                result = (type(error).__name__, str(error))
            kept.append(result)
            facts.append(look(scene, given, result))
        facts.append([describe(result) for result in kept])
    finally:
        scene.undo()
    return facts


def look(scene: Scene, given: Given, result: Any) -> dict[str, Any]:
    """All that a call may have changed."""
    arguments = [*pytree.tree_leaves((given.args, given.kwargs))]
    tensors = [item for item in arguments if isinstance(item, torch.Tensor)]
    watched: Any = scene.watch()
    state: list[Any] = []
    if isinstance(scene.what, nn.Module):
        state = [*scene.what.parameters(), *scene.what.buffers()]
    outputs = [item for item in pytree.tree_leaves(result) if isinstance(item, torch.Tensor)]
    known = [*tensors, *state, *(i for i in pytree.tree_leaves(watched) if is_tensor(i))]
    return {
        "result": describe(result),
        "identities": [[item is other for other in known] for item in outputs],
        "aliases": [[shares(item, other) for other in [*known, *outputs]] for item in outputs],
        "arguments": describe(arguments),
        "gradients of arguments": describe(
            [item.grad if item.is_leaf else None for item in tensors]
        ),
        "state": describe(state),
        "gradients": describe([item.grad for item in state]),
        "watched": describe(watched),
        "random numbers": bytes(torch.get_rng_state().tolist()),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "types": [torch.get_default_dtype(), torch.get_num_threads()],
    }


def is_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor)


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    if any(
        item.layout is not torch.strided or item.is_meta or item.is_quantized for item in (a, b)
    ):
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != 0


def find_difference(expected: list[Any], found: list[Any]) -> str:
    """ "" where there is none."""
    for call, (wanted, is_now) in enumerate(zip(expected, found, strict=True)):
        if isinstance(wanted, dict):
            for name, value in wanted.items():
                if value != is_now[name]:
                    return f"call {call}: {name} is {is_now[name]!r:.600} and not {value!r:.600}"
        elif wanted != is_now:
            return "a result was changed by later calls"
    return ""


# What is done to a capture as a whole


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def capture_plain(what: Any = scaled, **options: Any) -> Any:
    with torch.no_grad():
        return ftax.capture(what, (normal(3, 4),), **options)


def test_threads_wait_for_each_other() -> None:
    state = torch.zeros(3, 4)

    def add(x: torch.Tensor) -> torch.Tensor:
        state.add_(x)
        return x * 2

    captured = capture_plain(add)
    wrong: list[int] = []

    def call(seed: int) -> None:
        x = torch.full((3, 4), float(seed))
        with torch.no_grad():
            wrong.extend(seed for _ in range(50) if not torch.equal(captured(x), x * 2))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert torch.equal(state, torch.full((3, 4), 300.0))


def test_a_capture_that_calls_itself_is_the_original() -> None:
    holder: list[Any] = []

    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else holder[0](x, n - 1) * 2

    holder.append(down)
    x = normal(3, 4)
    with torch.no_grad():
        expected = down(x, 4)
        captured = ftax.capture(down, (x, 4))
        holder[0] = captured
        for _ in range(3):
            assert torch.equal(captured(x, 4), expected)
            assert torch.equal(captured(x, 2), down(x, 2))


def test_a_closed_capture_says_so() -> None:
    captured = capture_plain()
    captured.close()
    captured.close()
    with pytest.raises(ftax.errors.RunnerError, match="was closed: call scaled itself"):
        captured(normal(3, 4))


@pytest.mark.parametrize("copy_it", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_capture_cannot_be_copied(copy_it: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"captured\.original"):
        copy_it(capture_plain())


def test_an_audit_finds_what_no_guard_does() -> None:
    clock = [0.0]
    read = functools.lru_cache(lambda: clock[0])
    captured = capture_plain(lambda x: x * read())
    with torch.no_grad():
        captured(normal(3, 4))
        captured.audit(2)
        captured(normal(3, 4))
        clock[0] = 3.0
        read.cache_clear()
        with pytest.raises(ftax.errors.RunnerError, match="output 0 has other values"):
            captured(normal(3, 4))


def test_a_miss_is_what_was_asked_for() -> None:
    wide = normal(5, 6)
    for on_miss, calls in (("capture", "recorded"), ("eager", "eager")):
        captured = capture_plain(on_miss=on_miss)
        with torch.no_grad():
            assert torch.equal(captured(wide), scaled(wide))
        assert captured.explain().calls[calls] == (2 if calls == "recorded" else 1)
    captured = capture_plain(on_miss="raise")
    with torch.no_grad(), pytest.raises(ftax.errors.InvalidArgumentError, match="no recorded call"):
        captured(wide)


def test_results_are_the_callers() -> None:
    table = torch.ones(3, 4)

    def work(x: torch.Tensor) -> Any:
        return [x + table, torch.zeros(2), {"ones": torch.ones(2)}]

    captured = capture_plain(work)
    x = normal(3, 4)
    with torch.no_grad():
        for _ in range(3):
            result = captured(x)
            assert describe(result) == describe(work(x))
            result[0].fill_(9)
            result[1].fill_(9)
            result.pop()["ones"].fill_(9)


def test_few_shapes_are_kept() -> None:
    captured = capture_plain(max_bytes=2 * capture_plain().memory_bytes)
    with torch.no_grad():
        for size in (3, 4, 5, 3, 4, 5):
            x = normal(size, 4)
            assert torch.equal(captured(x), scaled(x))
    assert len(captured.explain().programs) == 2


def test_a_refusal_may_be_only_a_warning() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x.exp() if x.sum() > 0 else x.neg()

    with pytest.warns(UserWarning, match="without a capture"):
        captured = capture_plain(branch, on_refusal="eager")
    for seed in range(3):
        x = normal(3, 4, seed=seed)
        with torch.no_grad():
            assert torch.equal(captured(x), branch(x))


def test_an_interruption_leaves_all_as_it_was() -> None:
    for at in (1, 2, 4, 6, 9):
        net = nn.Linear(4, 4)

        def work(x: torch.Tensor, net: nn.Module = net, at: int = at) -> Any:
            net.weight.mul_(2)
            memoryview(COUNTED)[0] += 1  # where nobody puts it back
            if COUNTED[0] == at:
                raise KeyboardInterrupt
            return net(x)

        COUNTED[0] = 0
        before = describe(list(net.parameters()))
        hooks = dict(nn.modules.module._global_forward_hooks)
        seed = torch.get_rng_state()
        with torch.no_grad(), contextlib.suppress(KeyboardInterrupt, ftax.errors.FtaxError):
            ftax.capture(work, (normal(3, 4),))
        assert describe(list(net.parameters())) == before
        assert dict(nn.modules.module._global_forward_hooks) == hooks
        assert torch.equal(torch.get_rng_state(), seed)


COUNTED = np.zeros(1)


def test_a_profiler_of_python_looks_on() -> None:
    profile = cProfile.Profile()
    profile.enable()
    before = sys.getprofile()  # itself; from Python 3.12 on none, as it looks on another way
    try:
        captured = capture_plain()
        with torch.no_grad():
            assert torch.equal(captured(torch.ones(3, 4)), torch.full((3, 4), 3.0))
        assert sys.getprofile() is before
    finally:
        profile.disable()
    assert profile.getstats()


def test_functions_that_are_frozen_are_guarded() -> None:
    space: dict[str, Any] = {}
    exec("FACTOR = 2.0\ndef inner(x):\n    return x * FACTOR\n", space)
    function = space["inner"]
    gc.freeze()
    try:
        captured = capture_plain(lambda x: function(x))
        space["FACTOR"] = 5.0
        with torch.no_grad():
            assert torch.equal(captured(torch.ones(3, 4)), torch.full((3, 4), 5.0))
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "graph"}, "kind is 'graph'"),
        ({"kind": "tapes"}, "has to be one of 'auto', 'tape', 'graph'"),
        ({"max_bytes": -1}, "max_bytes is -1"),
        ({"max_bytes": True}, "max_bytes is True"),
        ({"what": 3}, "'what' is an int, which cannot be called"),
    ],
)
def test_wrong_arguments_are_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ftax.errors.InvalidArgumentError, match=words):
        capture_plain(**options)


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    "transform",
    [
        torch.func.functionalize,
        lambda call: lambda x: torch.func.vmap(call)(x[None]),
        lambda call: lambda x: torch.func.jvp(call, (x,), (x,)),
        torch.func.grad,
    ],
    ids=["functionalize", "vmap", "jvp", "grad"],
)
def test_inside_of_transforms_of_torch_the_original_is_called(transform: Any) -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        return (x * x).sum()

    x = normal(3)
    with torch.no_grad():
        captured = ftax.capture(work, (x,))
        expected = pytree.tree_leaves(transform(work)(x))
        with pytest.warns(UserWarning, match=r"a transform of torch\.func|forward"):
            found = pytree.tree_leaves(transform(captured)(x))
        assert all(map(torch.equal, expected, found))
        assert torch.equal(captured(x), work(x))


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_tangent_is_not_dropped() -> None:
    import torch.autograd.forward_ad as forward

    x = normal(3)
    with torch.no_grad():
        captured = ftax.capture(lambda x: x * 2, (x,), on_refusal="eager")
        with forward.dual_level():
            dual = captured(forward.make_dual(x, torch.ones(3)))
            assert forward.unpack_dual(dual).tangent.tolist() == [2.0] * 3
