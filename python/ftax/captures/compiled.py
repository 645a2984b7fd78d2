"""A call of compiled code on a GPU, captured: a CUDA graph of what each of its graphs launches.

The compiled callable is called each time, and only where TorchDynamo's bytecode calls what Inductor
generated does it meet a replay. So torch's own guards decide, in front of each call, which compiled
code it is, and what is between two graphs runs as Python. A graph that was not there when the call
was recorded runs as it is, and the next call is recorded anew.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.captures.executed import Executed
from ftax.captures.gradients import Gradients
from ftax.captures.graph import GraphReplay, check_layouts, find_launch
from ftax.captures.guards import guard_state
from ftax.captures.program import Program
from ftax.errors import UnsupportedError, say_count
from ftax.runtimes.cuda_graph import capture_request, require_cuda_build
from ftax.steps.compiled_graphs import CalledGraph, list_called_graphs
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.steps.tensors import make_like, same_bytes
from ftax.steps.writes import find_storage
from ftax.tape.capture import CapturedGraph
from ftax.tape.equality import compare_outputs
from ftax.tape.tape import COMPILED, preserve_state
from ftax.timing.candidate import Buffers

_COMPILING_CALLS = 2  # the second compiles again where sizes have changed
_NOTHING = Executed(codes=(), changing=())  # torch's own guards know what was read


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class CompiledProgram(Program):
    """One recorded call of compiled code; ``patches`` put replays in the place of its graphs."""

    patches: GraphPatches

    @property
    def contents(self) -> str:
        """What is replayed."""
        return f"CUDA graphs of {say_count(self.operators, 'compiled graph')}"

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
        """As of others; none once torch has taken another graph."""
        if not self.patches.is_stale:
            return Program.match(self, args, kwargs)
        self.patches.close()  # or the next recording would be one of its replays
        return None

    def run(self, tensors: list[torch.Tensor]) -> Any:
        """What the compiled callable returns."""
        return self.patches(tensors)


def record_compiled(
    what: Callable[..., Any],
    loaded: LoadedModel,
    signature: _core.Signature,
    tensors: Sequence[torch.Tensor],
    *,
    kind: str,
    borrows: bool,
) -> CompiledProgram:
    """A call of what torch.compile made, in whole or in part, as ``loaded`` calls it.

    Raises UnsupportedError for what cannot be captured, or does not give the same bits.
    """
    if loaded.has_autograd:
        raise UnsupportedError(
            f"cannot capture {loaded.name}: {COMPILED}, and it runs with autograd on, where a call "
            "is compiled in two halves: call ftax.capture, and what it gives, under "
            "torch.inference_mode(); or capture what was compiled"
        )
    if kind == "tape" or torch.device(loaded.device).type != "cuda":
        raise UnsupportedError(
            f"cannot capture {loaded.name}: {COMPILED}, and what it generated makes no operator "
            "calls that could be recorded: capture what was compiled (of a compiled module its "
            "_orig_mod), whose bits are not those of the compiled one"
        )
    require_cuda_build()
    return record_doors(what, loaded, signature, tensors, borrows=borrows)


def record_doors(
    what: Callable[..., Any],
    loaded: LoadedModel,
    signature: _core.Signature,
    tensors: Sequence[torch.Tensor],
    *,
    borrows: bool,
) -> CompiledProgram:
    """What `record_compiled` gives, once it is clear that there may be graphs."""
    patches = GraphPatches(what, signature, torch.device(loaded.device), borrows=borrows)
    try:
        patches.open(loaded)
        _require_same_bits(loaded, patches)
    except BaseException:
        patches.close()
        raise
    return CompiledProgram(
        signature=signature,
        replay=patches,
        kind="graph",
        state=guard_state({}, _NOTHING, loaded.device, functions=(), has_autograd=False),
        executed=_NOTHING,
        written=(),
        generators=(),
        gradients=Gradients(added=(), made=(), dropped=()),
        operators=patches.graphs,
        tree=pytree.tree_structure(None),
        leaves=(),
        given=tensors,
        patches=patches,
    )


def _require_same_bits(loaded: LoadedModel, patches: GraphPatches) -> None:
    """Raises UnsupportedError where replays do not give what the compiled code gives."""
    for call in (loaded.call_check, loaded.call):
        expected = _run(call, loaded)
        with patches.opened():
            found = compare_outputs(expected, _run(call, loaded))
        if not found.bitwise and compare_outputs(expected, _run(call, loaded)).bitwise:
            raise UnsupportedError(
                f"cannot capture {loaded.name}: a replay of its compiled code does not give its "
                f"bits ({found.describe()}), though it gives them itself each time"
            )
        if patches.is_stale and call == loaded.call:
            raise UnsupportedError(
                f"cannot capture {loaded.name}: calls of its compiled code take other graphs, "
                "weights or sizes each time"
            )
        patches.is_stale = False  # other values may lead elsewhere


def _run(call: Callable[[], Any], loaded: LoadedModel) -> list[torch.Tensor]:
    """Outputs of a call in the caller's own grad mode, for which torch has compiled."""
    with preserve_state(loaded):
        outputs = flatten_outputs(call_model(call))
        with torch.no_grad():
            return [output.clone() for output in outputs]


class GraphPatches:
    """A compiled callable, and the replays that stand in the place of its graphs while this calls
    it. Whoever else calls it runs what was compiled."""

    def __init__(
        self,
        what: Callable[..., Any],
        signature: _core.Signature,
        device: torch.device,
        *,
        borrows: bool,
    ) -> None:
        self.is_stale = False
        self.memory_bytes = 0
        self.places: list[int] = []
        self.graphs = 0
        self._what, self._signature = what, signature
        self._device, self._borrows = device, borrows
        self._thread: int | None = None  # that is calling
        self._is_met = False  # since it began
        self._close: list[Callable[[], object]] = []

    def open(self, loaded: LoadedModel) -> None:
        """Capture each graph that a call on the main inputs runs, and put its replay there.

        Raises UnsupportedError for one that a CUDA graph cannot hold, and where there is none.
        """
        for _ in range(_COMPILING_CALLS):
            _run(loaded.call, loaded)
        called = {(id(item.home), item.name): item for item in list_called_graphs(loaded.call)}
        if not called:
            raise UnsupportedError(
                f"cannot capture {loaded.name}: {COMPILED}, but no call was seen to run a graph of "
                "it (a stance, torch's limit of compilations, or TorchDynamo has given it up)"
            )
        before = torch.cuda.memory_reserved(self._device)
        borrows = self._borrows and len(called) == 1
        for graph in called.values():
            self._put(graph, capture_graph(graph, loaded, borrows=borrows))
        self.graphs = len(called)
        self.memory_bytes = max(0, torch.cuda.memory_reserved(self._device) - before)

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        """What the callable returns for arguments with these tensors, by replays."""
        args, kwargs = self._signature.fill(tensors)
        with self.opened():
            return self._what(*args, **kwargs)

    def list_inputs(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """From themselves, since Python runs before the first graph."""
        return tensors

    def borrow(self, places: Sequence[int]) -> None:
        """Nothing to do: there are no gradients among its results."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Inside, this thread's calls of the graphs meet the replays. If it meets none, torch has
        taken other graphs."""
        self._thread, self._is_met = threading.get_ident(), False
        try:
            yield
        finally:
            self._thread = None
            self.is_stale |= not self._is_met

    def close(self) -> None:
        """Put back the graphs, when nothing of the replays is in flight."""
        torch.cuda.synchronize(self._device)
        while self._close:
            self._close.pop()()

    def _put(self, graph: CalledGraph, replay: Callable[..., Any]) -> None:
        own = weakref.ref(self)  # or nobody would ever let go of it

        def door(*args: Any) -> Any:
            patches = own()
            if patches is None or patches._thread != threading.get_ident():
                return graph.function(*args)
            patches._is_met = True
            found = replay(*args)
            if found is None:  # other weights, or another size
                patches.is_stale = True
                return graph.function(*args)
            return found

        stand_in = torch.compiler.disable(door)
        graph.home[graph.name] = stand_in

        def put_back() -> None:
            if graph.home.get(graph.name) is stand_in:
                graph.home[graph.name] = graph.function

        self._close.append(put_back)
        weakref.finalize(self, put_back)


def capture_graph(graph: CalledGraph, loaded: LoadedModel, *, borrows: bool) -> Callable[..., Any]:
    """What gives the results of ``graph`` on other inputs by launching what it launched; None where
    they are not like those that it was captured with, or weights lie elsewhere."""
    weights = {
        find_storage(item) for item in (*loaded.module.parameters(), *loaded.module.buffers())
    }
    given = [place for place, item in enumerate(graph.args) if isinstance(item, torch.Tensor)]
    places = [place for place in given if find_storage(graph.args[place]) not in weights]
    for place in given:
        if graph.args[place].device.type != torch.device(loaded.device).type:
            raise UnsupportedError(
                f"cannot capture {loaded.name}: a graph of its compiled code reads a tensor on "
                f"{graph.args[place].device}, which a CUDA graph would read once and for all"
            )
    originals = [graph.args[place] for place in places]
    check_layouts(originals, loaded.name)
    inputs = [make_like(item) for item in originals]
    args = list(graph.args)
    for place, own in zip(places, inputs, strict=True):
        args[place] = own
    made: list[Any] = []

    def request() -> list[torch.Tensor]:
        leaves, tree = pytree.tree_flatten(graph.function(*args))
        if not all(leaf is None or isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise UnsupportedError(
                f"cannot capture {loaded.name}: a graph of its compiled code gives a size that "
                "values make"
            )
        made[:] = leaves, tree
        return [leaf for leaf in leaves if leaf is not None]

    captured_graph, outputs, random = capture_request(loaded, request, loaded.name)
    leaves, tree = made
    captured = CapturedGraph(
        pieces=(captured_graph,),
        owner=(graph.function, args),
        buffers=Buffers(
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            constants=tuple(graph.args[place] for place in given if place not in places),
            mutated=not all(map(same_bytes, inputs, originals)),
        ),
        draws_random=random,
        host_reads=(),
    )
    launch = find_launch(captured)
    replay = GraphReplay(captured, torch.device(loaded.device), launch=launch, borrows=borrows)
    replay.places = list(range(len(outputs)))
    arguments = _core.GraphArguments(graph.args, places)
    has_value = [leaf is not None for leaf in leaves]

    def run(*args: Any) -> Any:
        found = arguments.match(args)
        if found is None:
            return None
        results = iter(replay(found))
        return pytree.tree_unflatten(
            [next(results) if is_there else None for is_there in has_value], tree
        )

    return run
