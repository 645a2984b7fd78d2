"""Records one run of a step into a tape, and observes operator calls independently of it.

Two instruments live here on purpose. `record` is the tape's own: a dispatch key that C++ observes
(or, where torch does not offer it, a TorchDispatchMode that feeds the same recorder). `observe` is
another instrument: a plain TorchDispatchMode that only writes down names and shapes; where autograd
runs, torch's profiling hooks, since a mode changes what a backward pass calls. What the tape says
it runs is checked against what `observe` saw. A third, `find_host_reads`, has a run of its
own: reads of memory that are no operator call (`tolist`, `numpy`, `data_ptr`) pass a function mode
alone, and torch takes other paths where one is active (its fast path for transformers does).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ftax import _core
from ftax.errors import UnavailableError, UnsupportedError
from ftax.steps.echoes import Echoes, PlainMode
from ftax.steps.module_calls import Call, log_operators, watch_module_calls
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.steps.setting import use_autograd
from ftax.steps.state import keep_weight, put_weights_back
from ftax.steps.writes import list_written

Observer = Literal["auto", "dispatch-key", "python"]

# Methods by which Python reaches a tensor's memory without an operator call, on a CPU.
MEMORY_READS = frozenset(
    ("tolist", "numpy", "__array__", "data_ptr", "__dlpack__", "untyped_storage", "storage")
)

# Operators that are so and that torch does not tag: sizes come from lengths, counts or places.
_SIZED_BY_VALUES = frozenset(
    (
        *("aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::nonzero_numpy"),
        *("aten::tensor_split.tensor_indices_or_sections", "aten::repeat_interleave.self_Tensor"),
        *("aten::where", "torchvision::nms"),  # where without values
    )
)
COMPILED_CODE = "code that torch.compile made"  # in the place of a call, which ran as written

_COPIES = ("aten::_to_copy", "aten::to")  # with all their overloads


def operator_name(func: Any) -> str:
    """Name of an OpOverload as the tape writes it: ``aten::add.Tensor``."""
    schema = func._schema
    overload = schema.overload_name
    return f"{schema.name}.{overload}" if overload else str(schema.name)


class _CallLog(PlainMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self.echoes = Echoes()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.echoes.has(func, args):
            given = (*args, *kwargs.values())
            self.calls.append(
                Call(
                    operator_name(func),
                    tuple(_list_shapes(given)),
                    is_sized_by_values(func, args),
                    tuple(_list_integers(given)),
                )
            )
        return self.echoes.keep(func, args, func(*args, **kwargs))

    def pass_on(self, func: Any, args: Any, kwargs: Any) -> Any:
        """As one call."""
        self.calls.append(Call(str(func), tuple(_list_shapes((*args, *kwargs.values())))))
        return func(*args, **kwargs)


def is_sized_by_values(func: Any, args: Sequence[Any]) -> bool:
    """Whether values make a size of its results."""
    return operator_name(func) in _SIZED_BY_VALUES or is_tagged_as_sized(func, args)


def is_tagged_as_sized(func: Any, args: Sequence[Any]) -> bool:
    """Whether torch says so; of indexing it says so always, which is true of masks alone."""
    if torch.Tag.dynamic_output_shape not in func.tags:
        return False
    if func._schema.name not in ("aten::index", "aten::_unsafe_index"):
        return True
    return any(item is not None and item.dtype in (torch.bool, torch.uint8) for item in args[1])


def _list_integers(values: Sequence[Any]) -> Iterator[int]:
    for value in values:
        if isinstance(value, int):
            yield int(value)
        elif isinstance(value, list | tuple):
            yield from _list_integers(value)


def _list_shapes(values: Sequence[Any]) -> Iterator[tuple[int, ...] | None]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield None if value.is_nested else tuple(value.shape)
        elif isinstance(value, list | tuple):
            yield from _list_shapes(value)


class _KeepWeights(PlainMode):
    """Has each parameter of a module copied before an operator call writes into it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weights: dict[int, list[nn.Parameter]] = {}
        for weight in module.parameters():
            if weight.layout == torch.strided:
                self.weights.setdefault(weight.untyped_storage()._cdata, []).append(weight)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in list_written(func, args, kwargs):
            if tensor.layout == torch.strided:
                for weight in self.weights.get(tensor.untyped_storage()._cdata, ()):
                    keep_weight(weight)
        return func(*args, **kwargs)


@contextmanager
def keep_weights(module: nn.Module) -> Iterator[PlainMode]:
    """Parameters that the module writes into by operator calls are afterwards as they were, and are
    from now on among what a Snapshot restores."""
    with _KeepWeights(module) as watch:
        yield watch
    put_weights_back(module.parameters())


class _FeedRecorder(PlainMode):
    def __init__(self, recording: _core.Recording) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recording = recording

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        return self.recording.call(func, schema.name, schema.overload_name, args, **(kwargs or {}))


class _HostReadLog(TorchFunctionMode):
    def __init__(self, where: Callable[[], str]) -> None:
        super().__init__()
        self.where = where
        self.reads: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in MEMORY_READS:
            self.reads.append(f"Tensor.{name} in {self.where() or 'the model itself'}")
        return func(*args, **(kwargs or {}))


def observe(
    call: Callable[[], Any], *, has_autograd: bool = False, is_compiled: bool = False
) -> list[Call]:
    """Operator calls of one inference in order, as a TorchDispatchMode sees them; of a run with
    autograd, or of compiled code, which runs under no mode, as torch's profiling hooks do.

    Raises RunnerError if ``call`` raises.
    """
    if has_autograd or is_compiled:
        with use_autograd(has_autograd):
            return log_operators(lambda: call_model(call))
    with torch.inference_mode(), _CallLog() as log:
        call_model(call)
    return [*log.calls, *([Call(COMPILED_CODE, ())] if log.met_compiled else [])]


def find_host_reads(
    call: Callable[[], Any], module: nn.Module | None, *, has_autograd: bool = False
) -> list[str]:
    """Where one inference reads a tensor's memory from Python without any operator call."""
    with use_autograd(has_autograd), follow_modules(module, lambda _: None) as where:
        log = _HostReadLog(where)
        with log:
            call_model(call)
    return log.reads


@functools.cache
def dispatch_key_works(*, has_autograd: bool = False) -> bool:
    """Whether this torch lets the dispatch key observe calls: probed once with a real call."""
    seen = ["aten::t", "aten::mm"] if has_autograd else ["aten::linear"]
    # The answer is kept, and is not to be that of the modes that who asked first was in.
    with torch.inference_mode(False), torch.autocast("cpu", enabled=False):
        x, weight = torch.ones(1, 2), torch.ones(2, 2, requires_grad=has_autograd)

        def call() -> torch.Tensor:
            return torch.nn.functional.linear(x, weight)

        try:
            tape, _ = _record_with_key(call, [x], [weight], "cpu", None, has_autograd)
        except UnavailableError:
            return False
    return bool(tape.operators == seen)


def record(
    call: Callable[[], Any],
    *,
    inputs: Sequence[torch.Tensor],
    module: nn.Module | None,
    device: str,
    observer: Observer = "auto",
    state: Sequence[torch.Tensor] = (),
    has_autograd: bool = False,
) -> tuple[_core.Tape, list[torch.Tensor]]:
    """Run ``call`` once under inference mode and return its tape and its outputs.

    ``inputs`` are the tensors that may be rebound; parameters and buffers of ``module``, and other
    ``state`` that outlives the call, are shared with the tape. ``has_autograd``: with autograd on,
    and recorded below it; the tape is then replayed without.

    Raises UnsupportedError, naming operator and module, for what cannot be taped,
    and RunnerError if ``call`` raises.
    """
    weights = [] if module is None else [*module.parameters(), *module.buffers()]
    weights += state
    for place, tensor in enumerate(inputs):
        if tensor.is_nested and tensor.layout == torch.strided:
            raise UnsupportedError(
                f"cannot tape this model: input {place} is a nested tensor, which has no one size "
                "that a tape could hold; give layout=torch.jagged, or a padded tensor"
            )
    if observer == "auto":
        works = dispatch_key_works(has_autograd=has_autograd)
        observer = "dispatch-key" if works else "python"
    record_with = _record_with_key if observer == "dispatch-key" else _record_with_python
    return record_with(call, list(inputs), weights, device, module, has_autograd)


def _record_with_key(
    call: Callable[[], Any],
    inputs: list[torch.Tensor],
    weights: list[torch.Tensor],
    device: str,
    module: nn.Module | None,
    has_autograd: bool,
) -> tuple[_core.Tape, list[torch.Tensor]]:
    with use_autograd(has_autograd):
        recording = _core.Recording(inputs, weights, device, _choose_level(has_autograd))
        with follow_modules(module, recording.set_module), _refuse_triton(recording):
            recording.start()
            try:
                result = _run(call, recording)
            finally:
                recording.stop()
    return _finish(recording, result, inputs)


def record_fragment(expression: Callable[[], Any], inputs: Sequence[torch.Tensor]) -> _core.Tape:
    """Record what ``expression`` calls on ``inputs``, without outputs: for looking, not
    replaying."""
    recording = _core.Recording(list(inputs), [], str(inputs[0].device) if inputs else "cpu")
    recording.start()
    try:
        result = expression()  # held until the recording stops: a dead output would be a new slot
    finally:
        recording.stop()
    del result
    return recording.finish([])


def record_with_autograd(
    call: Callable[[], Any],
    *,
    inputs: Sequence[torch.Tensor],
    module: nn.Module,
    device: str,
    state: Sequence[torch.Tensor],
) -> _core.Tape:
    """A tape above autograd of one run with it: each backward pass is one call, which has
    autograd's engine run again. Raises as `record` does."""
    weights = [*module.parameters(), *module.buffers(), *state]
    with use_autograd(True):
        recording = _core.Recording(list(inputs), weights, device, _core.Level.with_autograd)
        watching = follow_modules(module, recording.set_module), _refuse_triton(recording)
        with watching[0], watching[1], _record_backward(recording):
            recording.start()
            try:
                result = _run(call, recording)
            finally:
                recording.stop()
    return _finish(recording, result, list(inputs))[0]


@contextmanager
def _record_backward(recording: _core.Recording) -> Iterator[None]:
    """Tell the recording of each backward pass, at the one place by which Python starts any."""
    autograd: Any = torch.autograd
    engine = autograd._engine_run_backward
    is_inside = False

    def run(
        roots: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        keeps_graph: bool,
        creates_graph: bool,
        inputs: Sequence[torch.Tensor],
        *more: Any,
        **options: Any,
    ) -> Any:
        nonlocal is_inside
        problem = ""
        if is_inside:
            problem = "its backward pass starts another one (reentrant checkpointing)"
        elif not all(isinstance(root, torch.Tensor) for root in roots):
            problem = "its backward pass starts at a GradientEdge: give backward() the tensor"
        elif creates_graph or inputs or any(gradient is None for gradient in gradients):
            problem = "it asks autograd for the gradients of some tensors alone, or for their graph"
        if problem:
            recording.refuse(problem)
            return engine(roots, gradients, keeps_graph, creates_graph, inputs, *more, **options)
        recording.begin_backward(roots)
        is_inside = True
        try:
            return engine(roots, gradients, keeps_graph, creates_graph, inputs, *more, **options)
        finally:
            is_inside = False
            recording.end_backward(roots, gradients, keeps_graph)

    autograd._engine_run_backward = run
    try:
        yield
    finally:
        autograd._engine_run_backward = engine


def _record_with_python(
    call: Callable[[], Any],
    inputs: list[torch.Tensor],
    weights: list[torch.Tensor],
    device: str,
    module: nn.Module | None,
    has_autograd: bool,
) -> tuple[_core.Tape, list[torch.Tensor]]:
    with use_autograd(has_autograd):
        recording = _core.Recording(inputs, weights, device, _choose_level(has_autograd))
        paths = follow_modules(module, recording.set_module)
        with paths, _refuse_triton(recording), _FeedRecorder(recording):
            result = _run(call, recording)
    return _finish(recording, result, inputs)


def _run(call: Callable[[], Any], recording: _core.Recording) -> Any:
    before = torch.is_grad_enabled()
    result = call_model(call)
    if torch.is_grad_enabled() != before:
        recording.refuse("it leaves the grad mode changed, which a replay would not")
    return result


def _choose_level(has_autograd: bool) -> _core.Level:
    """Below autocast too, where the caller has it on: it casts within the call."""
    below = has_autograd or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    return _core.Level.below_autograd if below else _core.Level.above_autograd


def _finish(
    recording: _core.Recording, result: Any, inputs: list[torch.Tensor]
) -> tuple[_core.Tape, list[torch.Tensor]]:
    outputs = flatten_outputs(result)
    tape = recording.finish(outputs)
    tape.bind_inputs(inputs)
    return tape, outputs


@contextmanager
def _refuse_triton(recording: _core.Recording) -> Iterator[None]:
    """A Triton kernel that the model launches itself makes no operator call: a replay would leave
    it out. Inside an operator (torch's triton_op) it is the operator's."""
    jit = sys.modules.get("triton.runtime.jit")
    function: Any = getattr(jit, "JITFunction", None)
    if function is None:
        yield
        return
    run = function.run

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not recording.is_inside_call:
            recording.refuse(
                f"it launches the Triton kernel {getattr(self, '__name__', '?')} by itself, which "
                "is no operator call that a replay could make; register it with "
                "torch's triton_op"
            )
        return run(self, *args, **kwargs)

    function.run = refuse
    try:
        yield
    finally:
        function.run = run


@contextmanager
def follow_modules(
    module: nn.Module | None, tell: Callable[[str], None]
) -> Iterator[Callable[[], str]]:
    """``tell`` which submodule's forward is running; yields how to ask for it."""
    if module is None:
        yield str
        return
    paths = {id(child): name for name, child in module.named_modules()}
    running: list[str] = []

    def enter(child: nn.Module, _args: Any) -> None:
        running.append(paths.get(id(child), type(child).__name__))
        tell(running[-1])

    def leave(_child: nn.Module, _args: Any, _output: Any) -> None:
        running.pop()
        tell(running[-1] if running else "")

    with watch_module_calls(enter, leave):
        yield lambda: running[-1] if running else ""


def describe_place(call: dict[str, Any]) -> str:
    """``aten::add.Tensor in encoder.layer.0``."""
    module = call["module"]
    return f"{call['operator']} in {module or 'the model itself'}"


def find_copies_to_host(calls: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Where they stand, of those that make a tensor: `tolist` and `cpu` are made of them."""
    for call in calls:
        if _names_host(call) and call["operator"].partition(".")[0] in _COPIES:
            yield describe_place(call)


def refuse_unawaited_copies(tape: _core.Tape) -> None:
    """Raises UnsupportedError for a copy to the host that nobody waits for: the wait that comes
    later (of an event, a stream) is no operator call, and a replay would read too early."""
    on_host = {slot for slot, tensor in tape.constants if tensor.device.type == "cpu"}
    for call in tape.calls:
        name, _, overload = call["operator"].partition(".")
        to_host = _names_host(call)
        if to_host:
            on_host.update(call["outputs"])
        if name in _COPIES:
            schema = torch._C._get_schema(name, overload)
            place = [item.name for item in schema.arguments].index("non_blocking")
            early = to_host and call["arguments"][place][1] is True
        elif name == "aten::copy_":
            target, source, is_early = (value for _, value in call["arguments"])
            early = is_early is True and target in on_host and source not in on_host
        else:
            continue
        if early:
            raise UnsupportedError(
                f"cannot tape this model: {describe_place(call)} copies to the host without "
                "waiting (non_blocking=True), and what waits for it later is no operator that a "
                "tape could hold; leave non_blocking out"
            )


def _names_host(call: dict[str, Any]) -> bool:
    constants = [value for kind, value in call["arguments"] if kind == "const"]
    return any(isinstance(item, torch.device) and item.type == "cpu" for item in constants)
