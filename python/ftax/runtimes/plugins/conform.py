"""Whether a shared library keeps the promises of ftax/runner.h: `ftax conform ./libmine.so`.

Every check runs in another process. A library that crashes fails the check that it crashed in, and
the others go on. A check is here if breaking its promise makes a printed number wrong, and the
comparison of outputs before each measurement does not notice. Those of a GPU hold a stream busy by
a kernel that burns time, not by ftax's gate: the gate opens when the host says so, and a library
that waits for the device would never come back.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack, get_args

import torch
from torch import nn

from ftax import _core
from ftax.errors import FtaxError, InvalidArgumentError, check_number, describe
from ftax.machines.environment import Device
from ftax.records.record import Name, Record
from ftax.records.result import Result
from ftax.runtimes.plugins.case import (
    INPUT_SETS,
    BoundPlugin,
    CheckFailedError,
    CheckSkippedError,
    TriedLibrary,
    make_case,
)
from ftax.runtimes.plugins.shared_library import check_device, split_name
from ftax.runtimes.plugins.trial import Answer, Status, WorkerSession, open_session
from ftax.steps.given import Model, load
from ftax.steps.inputs import make_generator
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting, SettingOptions, normalize_device, read_setting
from ftax.steps.spec import TORCH_DTYPES, Dtype
from ftax.steps.tensors import same_bytes
from ftax.tape.equality import compare_outputs
from ftax.timing.watched import ProgressChoice, watched

LIMIT_S = 60.0
_WIDTHS = (32, 64, 16)  # of the model that libraries are tried on by default
_BATCH = 4

_STATUSES: tuple[Status, ...] = get_args(Status)

_NONSENSE = "no-library-knows-this-config=1"
_HOLD_CYCLES = 1_000_000_000  # half a second at 2 GHz
_LOOK_S = 0.05  # after which work on a wrong stream would have been done
_ITERATIONS = 5
_CROWD_ROWS, _CROWD_PRODUCTS = 4096, 8  # of a product in fp32: some milliseconds each


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """``function`` is one of those below. It is given a `TriedLibrary`, in a worker, and raises
    CheckFailedError where the library fails."""

    name: str
    function: str
    devices: tuple[str, ...] = ("cpu", "cuda")


CHECKS = (
    Check(name="interface version", function="check_interface"),
    Check(name="refuses an unknown config", function="check_unknown_config"),
    Check(name="outputs equal eager's", function="check_outputs"),
    Check(name="prepare is no inference", function="check_prepare"),
    Check(name="uses the given stream", function="check_stream", devices=("cuda",)),
    Check(name="is done when its stream is", function="check_done", devices=("cuda",)),
    Check(name="enqueue does not wait", function="check_no_wait", devices=("cuda",)),
)


def conform(
    library: str | os.PathLike[str],
    model: Model | None = None,
    inputs: Any = None,
    *,
    limit_s: float = LIMIT_S,
    progress: ProgressChoice = None,
    **options: Unpack[SettingOptions],
) -> Conformance:
    """Try a shared library that implements ``ftax/runner.h``, each check in its own process.

    Args:
        library: its path, or "path?config".
        model: what it runs; left out, a small two-layer perceptron (`make_perceptron`).
        inputs: of a module, as for `ftax.tax`; models by name bring their own.
        limit_s: how long one check may take, once it has begun and has a CPU.
        options: the fields of `ftax.Setting` that say how the model is built; for the perceptron
            ``dtype`` and ``device``.

    Raises:
        InvalidArgumentError: there is no such file, or an argument is wrong.
    """
    check_number("limit_s", limit_s)
    path, config = split_name(os.fspath(library))
    loaded = _load(model, inputs, read_setting(options, conform.__kwdefaults__))
    case = make_case(loaded)
    findings = []
    with watched(progress, path) as tell, open_session(path, config, case) as session:
        for place, check in enumerate(CHECKS):
            if tell:
                tell(check.name, place, len(CHECKS))
            answer = _run(session, check, loaded.device, limit_s)
            findings.append(Finding(name=check.name, status=answer.status, reason=answer.reason))
    return Conformance(
        plugin=Path(path).name,
        config=config,
        model=loaded.name,
        device=loaded.device,
        findings=tuple(findings),
    )


def explain_perceptron(dtype: Dtype, device: str) -> str:
    """For whose library failed on the model that it was tried on, and is for another one."""
    tensors = make_case(make_perceptron(dtype=dtype, device=device)).describe()
    return (
        f"was tried on a perceptron, two layers with a relu between them: {tensors}. If it is for "
        "another model, use --model, or give that model and its inputs to ftax.conform"
    )


def make_perceptron(*, dtype: Dtype = "fp32", device: str = "cpu") -> LoadedModel:
    """first: 32 to 64, relu, second: 64 to 16; input (4, 32). Weights and inputs are always the
    same."""
    generator = make_generator(0, 0)
    layers = nn.Sequential()
    layers.add_module("first", nn.Linear(_WIDTHS[0], _WIDTHS[1]))
    layers.add_module("between", nn.ReLU())
    layers.add_module("second", nn.Linear(_WIDTHS[1], _WIDTHS[2]))
    with torch.no_grad():
        for weight in layers.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[-1] ** 0.5)
    kind = TORCH_DTYPES[dtype]
    first, second = (
        torch.randn(_BATCH, _WIDTHS[0], generator=generator).to(device, kind) for _ in range(2)
    )
    return load_model(layers.to(device, kind), inputs=first, check_inputs=second)


def _load(model: Model | None, inputs: Any, setting: Setting) -> LoadedModel:
    given = [*setting.chosen, *([] if inputs is None else ["inputs"])]
    for name in given:
        if name in setting.of_running:
            raise InvalidArgumentError(
                f"{name} says how a model is timed, and conform times nothing: leave {name} out"
            )
        if model is None and name not in ("dtype", "device"):
            raise InvalidArgumentError(
                f"{name} is given without a model, and the perceptron has only dtype and device: "
                "give the model that it is of (--model bert-base)"
            )
    if model is not None:
        return load(model, inputs, None, setting)
    device = "cpu" if setting.device is None else normalize_device(setting.device)
    return make_perceptron(dtype=setting.dtype or "fp32", device=device)


def _run(session: WorkerSession, check: Check, device: str, limit_s: float) -> Answer:
    if device.split(":")[0] not in check.devices:
        return Answer(status="skipped", reason=f"says nothing on {device}")
    return session.run(f"ftax.runtimes.plugins.conform:{check.function}", limit_s=limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Record):
    """How one check ended; ``reason`` says why it failed or was skipped, in one line."""

    name: Name
    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformance(Result):
    """What all checks found of one library on one model and device."""

    kind: ClassVar[str] = "conformance"

    plugin: Name  # the library's file name
    config: str
    model: Name
    device: Device
    findings: tuple[Finding, ...]

    def describe(self) -> str:
        """How many checks passed, failed and were skipped."""
        counts = Counter(finding.status for finding in self.findings)
        found = ", ".join(f"{counts[status]} {status}" for status in _STATUSES)
        return f"{self.plugin} on {self.model}, {self.device}: {found}"

    @property
    def conforms(self) -> bool:
        """Whether no check failed. A check that was skipped says nothing."""
        return all(finding.status != "failed" for finding in self.findings)


def check_interface(tried: TriedLibrary) -> str:
    """It loads, has this version of the interface, and says that it runs on the device."""
    check_device(tried)
    return f"{tried.open_library().name}, version {_core.RUNNER_ABI_VERSION}"


def check_unknown_config(tried: TriedLibrary) -> str:
    """`create` refuses nonsense, with a reason. A C++ exception that it lets out is none."""
    try:
        tried.create(_NONSENSE)
    except FtaxError as error:
        text = describe(error)
        if _core.NO_REASON in text or _core.THREW in text:
            raise CheckFailedError(text) from error
        return text
    raise CheckFailedError(f'create("{_NONSENSE}") was accepted; it has to return FTAX_ERROR')


def check_outputs(tried: TriedLibrary) -> str:
    """Both input sets, written into memory that is bound already, over poisoned outputs."""
    bound = tried.bind()
    worst = 0.0
    for place in (0, 1, 0):
        worst = max(worst, _compare(tried, place, bound.run(place)))
    return "bitwise" if worst == 0 else f"within {worst:.1e}"


def check_prepare(tried: TriedLibrary) -> str:
    """`prepare` leaves the outputs alone, also twice in a row, and keeps nothing of the inputs."""
    if not tried.open_library().has_prepare:
        raise CheckSkippedError("the library has none: each inference starts from the same state")
    bound = tried.bind()
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
        worst = max(worst, _compare(tried, place, bound.outputs))
    return "bitwise" if worst == 0 else f"within {worst:.1e}"


def check_stream(tried: TriedLibrary) -> None:
    """Behind a held stream nothing is written; once it is free, the answer is there."""
    stream, bound = _prepare(tried)
    watcher = torch.cuda.Stream(bound.outputs[0].device)
    seen = [output.clone() for output in bound.outputs]
    _copy(seen, bound.outputs, watcher)  # once before: a first copy may wait for the device
    bound.poison()
    bound.prepare()
    held = _hold(stream)
    bound.enqueue()
    time.sleep(_LOOK_S)
    _copy(seen, bound.outputs, watcher)
    if held.query():
        raise CheckSkippedError("the stream was free again before the outputs were looked at")
    for early, poison in zip(seen, bound.make_poison(), strict=True):
        if not same_bytes(early, poison):
            raise CheckFailedError(
                "outputs were written while the given stream was held: enqueue uses another stream"
            )
    bound.wait()
    equality = compare_outputs(tried.case.references[0], bound.outputs)
    if not equality.within_tolerance:
        raise CheckFailedError(f"behind a held stream: {equality.problem}")


def check_done(tried: TriedLibrary) -> None:
    """On a crowded GPU, where each kernel waits for a place: once ftax's wait for the given stream
    is over, so is the inference.

    Outputs are read while the crowd is still there, by a copy that needs no place. What works on
    another stream without this one waiting for it has not come to its turn by then.
    """
    _, bound = _prepare(tried)
    device = bound.outputs[0].device
    seen = [torch.empty_like(output, device="cpu").pin_memory() for output in bound.outputs]
    watcher = torch.cuda.Stream(device)
    crowd = _Crowd(device)
    for _ in range(_ITERATIONS):
        bound.poison()
        _copy(seen, bound.outputs, watcher)
        bound.prepare()
        crowd.gather()
        bound.enqueue()
        bound.wait()
        _copy(seen, bound.outputs, watcher)
        bound.settle()
        references = [right.cpu() for right in tried.case.references[0]]
        equality = compare_outputs(references, seen)
        if not equality.within_tolerance:
            raise CheckFailedError(
                "outputs were not there when the given stream was idle: enqueue works on another "
                f"stream, and this one does not wait for it ({equality.problem})"
            )


def check_no_wait(tried: TriedLibrary) -> None:
    """Enqueue returns while its stream is held."""
    stream, bound = _prepare(tried)
    bound.prepare()
    held = _hold(stream)
    bound.enqueue()
    waited = held.query()
    bound.settle()
    if waited:
        raise CheckFailedError(
            "enqueue returned only when its stream was idle: it waits for the device"
        )


def _prepare(tried: TriedLibrary) -> tuple[torch.cuda.Stream, BoundPlugin]:
    """A runner on a stream of its own, past its first calls, on an idle device."""
    torch.cuda._sleep(1000)  # loads the kernel that holds streams
    stream = torch.cuda.Stream(torch.device(tried.case.device))
    bound = tried.bind(stream=stream.cuda_stream)
    for _ in range(4):  # in the first a library may still prepare
        bound.run(0)
    bound.settle()
    return stream, bound


class _Crowd:
    """Products that take every multiprocessor, on two streams, so that while one product ends the
    other has blocks that wait: whatever is launched behind them waits too."""

    def __init__(self, device: torch.device) -> None:
        self._streams = [torch.cuda.Stream(device) for _ in range(2)]
        self._factor = torch.ones(_CROWD_ROWS, _CROWD_ROWS, device=device)
        self._products = [torch.empty_like(self._factor) for _ in self._streams]
        self.gather()  # once before: a first product loads its library
        torch.cuda.synchronize(device)

    def gather(self) -> None:
        """Have them queue up; they leave by themselves."""
        for _ in range(_CROWD_PRODUCTS):
            for stream, product in zip(self._streams, self._products, strict=True):
                with torch.cuda.stream(stream):
                    torch.mm(self._factor, self._factor, out=product)


def _hold(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Keep the stream busy; the event is done when it is free."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(_HOLD_CYCLES)
        held = torch.cuda.Event()
        held.record(stream)
    return held


def _copy(
    targets: list[torch.Tensor], sources: list[torch.Tensor], stream: torch.cuda.Stream
) -> None:
    with torch.cuda.stream(stream):
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)
    stream.synchronize()


def _compare(tried: TriedLibrary, place: int, outputs: list[torch.Tensor]) -> float:
    equality = compare_outputs(tried.case.references[place], outputs)
    if not equality.within_tolerance:
        raise CheckFailedError(f"{INPUT_SETS[place]}: {equality.problem}")
    return equality.difference
