"""Checks that need no instrument: what a library returns, and what it refuses.

Each takes a Subject, in a worker process, and raises CheckFailedError where the library fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import torch

from ftax import _core
from ftax.errors import FtaxError, describe
from ftax.runtimes.equality import compare_outputs
from ftax.runtimes.plugins.case import (
    INPUT_SETS,
    BoundPlugin,
    CheckFailedError,
    CheckSkippedError,
    Subject,
)
from ftax.runtimes.plugins.shared_library import check_device
from ftax.steps.tensors import same_bytes

_NONSENSE = "no-library-knows-this-config=1"


def check_interface(subject: Subject) -> str:
    """It loads, has this version of the interface, and says that it runs on the device."""
    check_device(subject)
    return f"{subject.open_library().name}, version {_core.RUNNER_ABI_VERSION}"


def check_unknown_config(subject: Subject) -> str:
    """`create` with nonsense."""
    return _expect_refusal(lambda: subject.create(_NONSENSE), f'create("{_NONSENSE}")')


def check_later(subject: Subject) -> None:
    """A context and tensors that go on behind what this version knows, and say so."""
    try:
        bound = subject.bind(later=True)
        outputs = bound.run(0)
    except FtaxError as error:
        raise CheckFailedError(
            f"a later ftax sends longer structs, which were refused: {describe(error)}"
        ) from error
    _compare(subject, 0, outputs)


def check_wrong_tensors(subject: Subject) -> None:
    """`bind` with an input that the model does not have, and with a shape, a rank and a dtype that
    it does not have."""
    bound = subject.bind()
    right = bound.inputs[0]
    other = torch.float64 if right.dtype != torch.float64 else torch.float32
    wrong = {
        "an input of an unknown name": ("input999", right),
        "a wrong dtype": ("input0", right.to(other)),
        "a wrong shape": ("input0", torch.cat([right, right], dim=-1) if right.dim() else right),
        "a wrong number of dimensions": ("input0", right.clone()[None]),
    }
    for what, (name, tensor) in wrong.items():
        if tensor is right and name == "input0":
            continue  # a scalar has no other shape
        told = f"{what}, given to bind as {name} of shape {tuple(tensor.shape)},"
        _expect_refusal(partial(bound.bind_tensor, "input", name, tensor), told)


def check_unbound(subject: Subject) -> str:
    """`enqueue` with nothing bound."""
    plugin = subject.create()
    subject.note("enqueue with nothing bound")
    return _expect_refusal(lambda: plugin.enqueue(0), "enqueue with nothing bound")


def check_outputs(subject: Subject) -> str:
    """Both input sets, written into memory that is bound already, over poisoned outputs."""
    bound = subject.bind()
    worst = 0.0
    for place in (0, 1, 0):
        worst = max(worst, _compare(subject, place, bound.run(place)))
    return "bitwise" if worst == 0 else f"within {worst:.1e}"


def check_prepare(subject: Subject) -> str:
    """`prepare` leaves the outputs alone, also twice in a row, and keeps nothing of the inputs."""
    if not subject.open_library().has_prepare:
        raise CheckSkippedError("the library has none: each inference starts from the same state")
    bound = subject.bind()
    worst = 0.0
    for place in (1, 0):
        bound.set_inputs(1 - place)
        bound.poison()
        bound.prepare()
        bound.prepare()
        if not all(map(same_bytes, bound.outputs, bound.make_poison())):
            raise CheckFailedError("prepare wrote outputs; the inference belongs into enqueue")
        bound.set_inputs(place)
        bound.enqueue()
        bound.wait()
        worst = max(worst, _compare(subject, place, bound.outputs))
    return "bitwise" if worst == 0 else f"within {worst:.1e}"


def check_rebinding(subject: Subject) -> None:
    """New memory under the same names: the old one is not read and not written any more."""
    bound = subject.bind()
    bound.run(0)
    old_inputs, old_outputs = bound.inputs, bound.outputs
    bound.bind_memory()
    for tensor in (*old_inputs, *old_outputs):
        tensor.fill_(torch.nan if tensor.is_floating_point() else 1)
    before = [output.clone() for output in old_outputs]
    _compare(subject, 1, bound.run(1))
    if not all(same_bytes(a, b) for a, b in zip(before, old_outputs, strict=True)):
        raise CheckFailedError("after binding new outputs, enqueue still wrote to the old ones")


def check_two_runners(subject: Subject) -> None:
    """Two at once with different inputs; then one outlives the other."""
    one, other = subject.bind(), subject.bind()
    _compare(subject, 0, one.run(0))
    _compare(subject, 1, other.run(1))
    one.poison()
    one.run_once()
    _compare(subject, 0, one.outputs)
    del one
    _compare(subject, 1, other.run(1))


def check_other_thread(subject: Subject) -> None:
    """Made on one thread, run on another."""
    bound = subject.bind()
    errors: list[Exception] = []

    def work() -> None:
        try:
            _compare(subject, 1, bound.run(1))
        except Exception as error:  # raised again below, on the thread that reports
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise CheckFailedError(f"on another thread: {describe(errors[0])}") from errors[0]


def warm_up(bound: BoundPlugin) -> None:
    """The calls of enqueue in which a library may still prepare."""
    for _ in range(3):
        bound.run_once()


def _compare(subject: Subject, place: int, outputs: list[torch.Tensor]) -> float:
    equality = compare_outputs(subject.case.references[place], outputs)
    if not equality.within_tolerance:
        raise CheckFailedError(f"{INPUT_SETS[place]}: {equality.problem}")
    return equality.difference


def _expect_refusal(call: Callable[[], object], what: str) -> str:
    """The reason that the library gave. A C++ exception that it let out is none."""
    try:
        call()
    except FtaxError as error:
        text = describe(error)
        if _core.NO_REASON in text or _core.THREW in text:
            raise CheckFailedError(text) from error
        return text
    raise CheckFailedError(f"{what} was accepted; it has to return FTAX_ERROR")
