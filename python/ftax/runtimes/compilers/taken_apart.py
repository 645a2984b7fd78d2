"""What torch.compile made, piece by piece: the rungs of the ladder of a compiled call.

A call goes through guards, through the bytecode that TorchDynamo wrote, through AOTAutograd's
wrapper, Inductor's, and the Python that Inductor generated. Each rung starts one layer further in,
on the tensors that a whole call had there. The layers are those that a plain `torch.compile` has
left, and not of a backend of our own, so the rungs are parts of the row `compile` itself. A rung's
outputs are those of a whole call in which the piece stands in for itself on the tensors that it
holds: if those were not the ones that a call reads, it would be seen.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.errors import UnsupportedError, describe_fault, is_out_of_memory
from ftax.runtimes.candidates import drive_python, grad_mode
from ftax.runtimes.compilers.torch_compile import Compilation, find_compilation, judge_rounds
from ftax.runtimes.cuda_graph import capture_request, require_cuda_build
from ftax.runtimes.workspace import Workspace
from ftax.steps.compiled_graphs import find_asked_guards, list_called_graphs
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.tensors import copy_into
from ftax.tape.capture import CapturedGraph
from ftax.timing.candidate import Buffers, Candidate, Host

_FURTHEST = 10_000  # objects that are looked at on the way from a graph to its code
_INSIDE = ("torch._inductor", "torch._functorch", "torch._dynamo")


def prepare_without_guards(workspace: Workspace, host: Host) -> Candidate:
    """The compiled callable, told to take the code that it has without asking whether it fits.
    Raises UnsupportedError where torch then compiles again."""
    compilation = find_compilation(workspace)
    guards, warnings = find_guards(compilation)
    runner = _core.PythonRunner(
        compilation.call,
        "compile-without-guards",
        workspace.loaded.device,
        grad_mode(workspace),
        scope=functools.partial(skipping_guards, guards),
    )

    def run() -> Sequence[torch.Tensor]:
        with skipping_guards(guards):
            return compilation.run()

    try:
        run()
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(
            f"the compiled {workspace.loaded.name} does not run without its guards: "
            f"{describe_fault(error)}"
        ) from error
    made = _make(compilation, "compile-without-guards", host, runner, run)
    return replace(made, warnings=warnings)


def prepare_graph(workspace: Workspace, host: Host) -> Candidate:
    """What Dynamo's bytecode calls: AOTAutograd's function, on the weights and inputs of a call."""
    parts = take_apart(workspace)
    return make_piece(workspace, "compile-graph", host, parts, parts.call_graph)


def prepare_inductor_graph(workspace: Workspace, host: Host) -> Candidate:
    """What AOTAutograd calls: Inductor's object around the code that it generated."""
    parts = take_apart(workspace)
    return make_piece(workspace, "inductor-graph", host, parts, parts.call_code)


def prepare_inductor_call(workspace: Workspace, host: Host) -> Candidate:
    """The generated Python alone."""
    parts = take_apart(workspace)
    return make_piece(workspace, "inductor-call", host, parts, parts.call_generated)


def prepare_inductor_cpp_call(workspace: Workspace, host: Host) -> Candidate:
    """The same graph, for which Inductor generates C++ in place of Python (`cpp_wrapper`)."""
    compilation = Compilation(workspace, "inductor-cpp-call", options={"cpp_wrapper": True})
    with _tuned_as(take_apart(workspace).list_tuned()):
        compilation.prepare(host)
    parts = Parts(compilation)
    return make_piece(workspace, "inductor-cpp-call", host, parts, parts.call_generated)


def prepare_inductor_cuda_graph(workspace: Workspace, host: Host) -> Candidate:
    """What the generated Python launches, in one CUDA graph."""
    return _prepare_captured(workspace, host, "inductor-cuda-graph", is_graph=True)


def prepare_inductor_launch_replay(workspace: Workspace, host: Host) -> Candidate:
    """The launches of that graph, one driver call each."""
    return _prepare_captured(workspace, host, "inductor-launch-replay", is_graph=False)


class Parts:
    """The pieces of one compiled callable, and what a call hands each of them.

    Raises UnsupportedError for a callable of which a call is not one graph.
    """

    def __init__(self, compilation: Compilation) -> None:
        self.compilation = compilation
        name = compilation.workspace.loaded.name
        called = list_called_graphs(compilation.run)
        given = [item for graph in called for item in graph.args if torch.is_tensor(item)]

        def refuse(why: str) -> UnsupportedError:
            return UnsupportedError(
                f"cannot take the compiled {name} apart: {why}, and its parts follow one another "
                "only where the whole call is one graph"
            )

        if compilation.workspace.loaded.has_autograd and any(x.requires_grad for x in given):
            raise refuse(
                "autograd is on, and a backward pass has a graph of its own (if you never call "
                "backward, measure with grad_mode='no_grad')"
            )
        if compilation.breaks:
            raise refuse(f"it is broken ({', '.join(compilation.breaks[:3])})")
        if not called:
            raise refuse("no graph stays for a second call (TORCH_LOGS=recompiles says why)")
        if len(called) > 1:
            raise refuse(f"it has {len(called)} graphs (TORCH_LOGS=graph_breaks says where)")
        self._home, self._name, self._wrapped, self._args = called[0]
        # Dynamo keeps itself out of the graph by one more function around it.
        self.graph: Callable[..., Any] = getattr(
            self._wrapped, "_torchdynamo_orig_callable", self._wrapped
        )
        beside = self._list_operators_beside()
        if beside:
            raise refuse(f"a call runs {', '.join(beside[:3])} beside its graph")
        self._code = _find_code(self.graph, name)
        self._place = _find_generated(self._code)
        self.generated: Callable[[list[Any]], Any] = getattr(*self._place)
        calls: list[Any] = []

        def note(inputs: list[Any]) -> Any:
            calls.append(list(inputs))  # a copy: generated code empties the list
            return self.generated(inputs)

        with self.replacing_generated(note):
            compilation.run()
        if len(calls) != 1:
            raise UnsupportedError(
                f"cannot take the compiled {name} apart: a call runs Inductor's code {len(calls)} "
                "times"
            )
        self._inputs: list[Any] = calls[0]

    def _list_operators_beside(self) -> list[str]:
        """Operators that a call runs outside of its graph, those that only make a view left out: of
        a part that was not compiled, or is compiled by itself."""
        log = _core.CallLog()

        def leave_out(*args: Any) -> Any:
            log.stop()
            try:
                return self.graph(*args)
            finally:
                log.start()

        with self.replacing_graph(leave_out), self.compilation.as_timed():
            log.start()
            try:
                self.compilation.call()
            finally:
                log.stop()
        names = dict.fromkeys(name for name, *_, depth, _ in log.calls if depth == 0)
        return [name for name in names if not _makes_view(name)]

    def call_graph(self) -> Any:
        """AOTAutograd's function."""
        return self.graph(*self._args)

    def call_code(self) -> Any:
        """Inductor's object."""
        return self._code(list(self._inputs))

    def call_generated(self) -> Any:
        """The generated code."""
        return self.generated(list(self._inputs))

    def list_tuned(self) -> dict[str, Any]:
        """What was chosen for each of Triton's kernels in the generated Python, by their names."""
        names = _unbind(self.generated).__globals__
        kernels = [item for item in names.values() if len(getattr(item, "launchers", ())) == 1]
        return {kernel.fn.__name__: kernel.launchers[0].config for kernel in kernels}

    def run_with(self, piece: Callable[[], Any]) -> list[torch.Tensor]:
        """Outputs of a whole call, in which ``piece`` stands where its like does."""
        if piece == self.call_graph:
            with self.replacing_graph(lambda *_: piece()):
                return self.compilation.run()

        def stand_in(_: list[Any]) -> Any:
            with self.replacing_generated(self.generated):  # which the piece may come to
                return piece()

        with self.replacing_generated(stand_in):
            return self.compilation.run()

    @contextmanager
    def replacing_graph(self, other: Callable[..., Any]) -> Iterator[None]:
        """Dynamo's bytecode calls ``other`` meanwhile."""
        self._home[self._name] = torch.compiler.disable(other)
        try:
            yield
        finally:
            self._home[self._name] = self._wrapped

    @contextmanager
    def replacing_generated(self, other: Callable[[list[Any]], Any]) -> Iterator[None]:
        """Inductor's object calls ``other`` meanwhile."""
        before = getattr(*self._place)
        setattr(*self._place, other)
        try:
            yield
        finally:
            setattr(*self._place, before)


@contextmanager
def _tuned_as(chosen: Mapping[str, Any]) -> Iterator[None]:
    """Whatever is compiled meanwhile takes these configurations for the kernels of Triton that have
    the names: of two that are about as fast Inductor takes either, and rungs would run others."""
    if not chosen:
        yield
        return
    from torch._inductor.runtime import triton_heuristics

    tuners: Any = triton_heuristics.CachingAutotuner
    benchmark = tuners.benchmark_all_configs

    def prefer(tuner: Any, *args: Any, **kwargs: Any) -> dict[Any, float]:
        wanted = chosen.get(tuner.fn.__name__)
        return {
            launcher: 0.0 if _is_alike(launcher.config, wanted) else time
            for launcher, time in benchmark(tuner, *args, **kwargs).items()
        }

    tuners.benchmark_all_configs = prefer
    try:
        yield
    finally:
        tuners.benchmark_all_configs = benchmark


def _is_alike(config: Any, other: Any) -> bool:
    """Whether they are one configuration; objects of two processes are not equal."""
    names = ("kwargs", "num_warps", "num_stages")
    return other is not None and all(getattr(config, n) == getattr(other, n) for n in names)


def take_apart(workspace: Workspace) -> Parts:
    """The pieces of the row `compile`."""
    return workspace.keep("compile in parts", lambda: Parts(find_compilation(workspace)))


def make_piece(
    workspace: Workspace,
    runtime: str,
    host: Host,
    parts: Parts,
    piece: Callable[[], Any],
) -> Candidate:
    """A rung that runs ``piece``, a method of ``parts``."""
    runner = drive_python(workspace, runtime, piece)
    return _make(parts.compilation, runtime, host, runner, lambda: parts.run_with(piece))


def _make(
    compilation: Compilation,
    runtime: str,
    host: Host,
    runner: _core.Runner,
    run: Callable[[], Sequence[torch.Tensor]],
) -> Candidate:
    return Candidate(
        runtime=runtime,
        host=host,
        runner=runner,
        run=run,
        preparation=compilation.preparation,
        judge=judge_rounds,
    )


def _prepare_captured(
    workspace: Workspace, host: Host, runtime: str, *, is_graph: bool
) -> Candidate:
    require_cuda_build()
    parts = take_apart(workspace)
    captured, replayed = workspace.keep("inductor captured", lambda: _capture(workspace, parts))
    if is_graph:
        runner: _core.Runner = captured.drive(runtime)
    else:
        runner = _core.LaunchReplayRunner(captured.graph.raw_cuda_graph(), runtime, captured)

    def piece() -> Any:
        runner.run_once()
        return replayed()

    return _make(parts.compilation, runtime, host, runner, lambda: parts.run_with(piece))


def _capture(workspace: Workspace, parts: Parts) -> tuple[CapturedGraph, Callable[[], Any]]:
    """A CUDA graph of the generated code, and what gives the outputs of its last replay."""
    made: list[Any] = []

    def request() -> list[torch.Tensor]:
        made[:] = pytree.tree_flatten(parts.call_generated())
        return flatten_tensors(made[0])

    graph, outputs, random = capture_request(workspace.loaded, request, "inductor-cuda-graph")
    leaves, tree = made
    captured = CapturedGraph(
        pieces=(graph,),
        owner=parts,
        buffers=Buffers(
            inputs=tuple(workspace.loaded.flat_inputs()), outputs=tuple(outputs), constants=()
        ),
        draws_random=random,
        host_reads=(),
    )
    return captured, lambda: pytree.tree_unflatten(leaves, tree)


def _find_code(graph: Callable[..., Any], name: str) -> Any:
    """Inductor's object behind AOTAutograd's function: how many wrappers lie between depends on
    torch and on the graph, so all that they hold is followed."""
    from torch._inductor.output_code import OutputCode

    seen: set[int] = set()
    ahead: deque[Any] = deque([graph])
    while ahead and len(seen) < _FURTHEST:
        item = ahead.popleft()
        if isinstance(item, OutputCode):
            return item
        if id(item) in seen:
            continue
        seen.add(id(item))
        ahead.extend(filter(_leads_on, gc.get_referents(item)))
    raise UnsupportedError(
        f"cannot take the compiled {name} apart: Inductor's code was not found behind "
        f"AOTAutograd's function in this torch ({torch.__version__})"
    )


def _find_generated(code: Any) -> tuple[Any, str]:
    """What holds the function that Inductor generated, and by which name: Inductor's object, or a
    function around it that copies inputs whose addresses are odd, as on a GPU."""
    holder, name = code, "current_callable"
    while True:
        function = _unbind(getattr(holder, name))
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        if "model" not in names:
            return holder, name
        holder, name = function.__closure__[names.index("model")], "cell_contents"


def _makes_view(operator: str) -> bool:
    """Whether all that it gives shares memory with what it was given; "aten::view"."""
    name, _, overload = operator.partition(".")
    returns = torch._C._get_schema(name, overload).returns
    aliases = [item.alias_info for item in returns]  # none: it writes into what it is given
    return bool(aliases) and all(item is not None and not item.is_write for item in aliases)


def _unbind(function: Any) -> Any:
    """A function, or that of a method."""
    return getattr(function, "__func__", function)


def _leads_on(item: object) -> bool:
    if isinstance(item, types.FunctionType):
        return True
    kinds = (types.CellType, types.MethodType, functools.partial, tuple, list)
    if isinstance(item, dict):
        return "__name__" not in item  # no module's globals
    return isinstance(item, kinds) or type(item).__module__.startswith(_INSIDE)


def find_guards(compilation: Compilation) -> tuple[list[Any], tuple[str, ...]]:
    """The trees of guards that can be left out, since no other compilation of their function runs,
    and what is to be said of the others."""
    loaded = compilation.workspace.loaded
    inputs = loaded.flat_inputs()
    main = [tensor.detach().clone() for tensor in inputs]

    def run_on_both() -> None:
        compilation.run()
        try:
            copy_into(inputs, loaded.flat_check_inputs())
            with suppress(RuntimeError):  # which the check of outputs says
                compilation.run()
        finally:
            copy_into(inputs, main)

    asked = find_asked_guards(run_on_both)
    warnings = tuple(
        f"a call runs {len(trees)} compilations of {code.co_name} ({Path(code.co_filename).name}:"
        f"{code.co_firstlineno}), which torch tells apart by tests of tensors and of what once "
        "differed: these are still made without guards, so the line is short of them"
        for code, trees in asked.items()
        if len(trees) > 1
    )
    return [trees[0] for trees in asked.values() if len(trees) == 1], warnings


@contextmanager
def skipping_guards(guards: Sequence[Any]) -> Iterator[None]:
    """Nothing is asked of these trees of guards. The stance alone still makes their tests of
    tensors, which for the buffers of a ResNet are a good part."""
    from torch._C._dynamo.guards import RootGuardManager

    before = [tree.diff_guard_root for tree in guards]
    ours = [RootGuardManager() for _ in guards]  # held to the end: torch has their addresses
    try:
        for tree, root in zip(guards, ours, strict=True):
            _ask_instead(tree, root)
        with torch.compiler.set_stance("default", skip_guard_eval_unsafe=True):
            yield
    finally:
        for tree, root, own in zip(guards, before, ours, strict=True):
            if tree.diff_guard_root is own:
                _ask_instead(tree, root)


def _ask_instead(tree: Any, root: Any) -> None:
    """Where guards are skipped, ``root`` is what is still asked."""
    tree.diff_guard_root = root
    entry = tree.cache_entry
    if entry is not None:  # None: what it was compiled for is gone
        entry.update_diff_guard_root_manager()
