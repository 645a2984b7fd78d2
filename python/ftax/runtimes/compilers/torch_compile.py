"""torch.compile, called as a user calls it: TorchDynamo, inductor, and for one mode CUDA graphs.

The first requests are made exactly as the timed loop makes them, through the runner, on its stream
and under its gradient mode. TorchDynamo guards on the gradient mode, so any other rehearsal would
leave a compilation for the first timed request.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ftax.errors import FtaxError, UnsupportedError, describe_fault, is_out_of_memory, say_count
from ftax.runtimes.candidates import check_both_inputs, drive_python
from ftax.runtimes.compilers.inductor import (
    caches_in,
    count_since,
    name_device,
    read_counters,
    sound_compiler,
    start_phases,
    without_warnings,
)
from ftax.runtimes.cost import measure_cost
from ftax.runtimes.workspace import Workspace
from ftax.steps.compiled_graphs import list_breaks, list_called_graphs, room_to_compile
from ftax.steps.outputs import flatten_outputs
from ftax.tape.capture import enter_stream
from ftax.tape.tape import preserve_state
from ftax.timing.candidate import Candidate, Host, Preparation
from ftax.workers.time_limit import time_limit

_CACHES = "inductor"
_REHEARSALS = 4  # CUDA graph trees warm up, record, and replay; the last shows that they are done
_REASONS = 5
_COMPILATIONS = 1000

# What the row `compile` of a workspace calls; held by the row, which holds the workspace.
_made: weakref.WeakKeyDictionary[Workspace, weakref.ref[Compilation]] = weakref.WeakKeyDictionary()


def prepare_compile(workspace: Workspace, host: Host) -> Candidate:
    """The default mode."""
    compilation = Compilation(workspace, "compile")
    prepared = compilation.prepare(host)
    _made[workspace] = weakref.ref(compilation)
    return prepared


def find_compilation(workspace: Workspace) -> Compilation:
    """What the row `compile` calls, made now if nobody has made it: rungs that take it apart have
    to be parts of it."""
    known = _made.get(workspace)
    found = None if known is None else known()
    if found is None:
        found = Compilation(workspace, "compile")
        found.prepare("python")
        _made[workspace] = weakref.ref(found)
    return found


def prepare_reduce_overhead(workspace: Workspace, host: Host) -> Candidate:
    """With CUDA graphs."""
    return Compilation(workspace, "compile-reduce-overhead", "reduce-overhead").prepare(host)


def prepare_max_autotune(workspace: Workspace, host: Host) -> Candidate:
    """With kernels chosen by trying them, and without CUDA graphs."""
    mode = "max-autotune-no-cudagraphs"
    return Compilation(workspace, "compile-max-autotune", mode).prepare(host)


class Compilation:
    """One model compiled in one mode, or with one set of Inductor's options. With these it is not
    cached on a GPU, where C++ names the files of its kernels by their path."""

    def __init__(
        self,
        workspace: Workspace,
        runtime: str,
        mode: str = "default",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.workspace, self.runtime = workspace, runtime
        self.mode = mode if options is None else ", ".join(options)
        self._scratch = None
        if options is not None and workspace.loaded.device != "cpu":
            self._scratch = Path(tempfile.mkdtemp(prefix="ftax-"))
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        given: dict[str, Any] = {"mode": mode} if options is None else {"options": dict(options)}
        loaded = workspace.loaded
        with without_warnings():
            self.module: Any = torch.compile(loaded.function, dynamic=False, **given)
        self.preparation = Preparation()  # what it took, once it is prepared
        self.breaks: list[str] = []  # why and where a call leaves compiled code
        self.call: functools.partial[Any] = functools.partial(
            self.module, *loaded.args, **loaded.kwargs
        )

    def prepare(self, host: Host) -> Candidate:
        """Compile it, from the cache if it was compiled before, and rehearse."""
        _ = self.workspace.reference  # what the model raises is not the compiler's fault
        if getattr(torch._dynamo.eval_frame._stance, "backend", None) is not None:
            raise UnsupportedError(
                "torch.compiler.set_stance(force_backend=...) is in effect: what torch.compile "
                "would give is that backend's"
            )
        try:
            # What other models compiled counts too, where they share code.
            with room_to_compile(_COMPILATIONS):
                return self._prepare(host)
        finally:
            _settle()  # also where it fails: rounds of others are not to blame

    def _prepare(self, host: Host) -> Candidate:
        workspace = self.workspace
        if self._scratch is not None:
            with measure_cost(workspace.loaded.device) as cost:
                made = self._compile_afresh(self._scratch)
            return self._finish(host, made, cost.to_preparation().also(**made), [])
        options = {
            "mode": self.mode,
            "no_grad": workspace.setting.grad_mode == "no_grad",
            "gpu": name_device(workspace.loaded.device),
        }
        artefact = workspace.artefact("compile", options, self._compile_afresh)
        facts: dict[str, Any] = {**artefact.facts}
        warnings: list[str] = []
        if artefact.from_cache:
            again = self._compile_from(artefact.folder / _CACHES)
            facts |= again
            warnings += _judge_cache(again)
        return self._finish(host, facts, artefact.to_preparation(**facts), warnings)

    def _finish(
        self,
        host: Host,
        facts: Mapping[str, Any],
        preparation: Preparation,
        warnings: Sequence[str],
    ) -> Candidate:
        """Check its outputs, and make requests until it does not compile any more."""
        workspace, self.preparation = self.workspace, preparation
        # Where what comes last is not compiled nothing is resumed, and the reason alone tells.
        reasons, places = facts["graph_break_reasons"][:1], list_breaks(self.run)
        self.breaks = [*reasons, *(f"at {place}" for place in places)]
        warnings = [*warnings, *self._judge_graphs(facts)]
        if workspace.is_compiled and self.runtime.startswith("compile"):
            warnings.append(
                "what was compiled is compiled once more, by Inductor with its defaults and for "
                "fixed sizes: the backend, mode and options that it had are left out"
            )
        runner = drive_python(workspace, self.runtime, self.call)
        prepared = Candidate(
            runtime=self.runtime,
            host=host,
            runner=runner,
            run=self.run,
            preparation=preparation,
            judge=judge_rounds,
        )
        # Here, and not by who asked for it: a branch that only the second input takes is compiled.
        checks = check_both_inputs(workspace, prepared)
        warnings += self._rehearse(workspace.on_stream(runner).run_once)
        return replace(prepared, checks=checks, warnings=tuple(warnings))

    def run(self) -> list[torch.Tensor]:
        """Copies of the outputs of a call as it is timed."""
        with self.as_timed():
            # Copies: a CUDA graph of the next run writes over the outputs.
            outputs = flatten_outputs((self.call(), self.workspace.loaded.list_returned()))
            return [output.detach().clone() for output in outputs]

    @contextmanager
    def as_timed(self) -> Iterator[None]:
        """In the modes of the timed loop, and whatever a call writes is put back."""
        with preserve_state(self.workspace.loaded), _as_timed(self.workspace):
            yield

    def _compile_afresh(self, folder: Path) -> Mapping[str, object]:
        """Compile with empty caches, which stay in ``folder``."""
        before, phases = read_counters(), start_phases()
        library = self._compile(folder / _CACHES)
        stats = count_since(before, "stats")
        breaks = count_since(before, "graph_break")
        return {
            "mode": self.mode,
            "graphs": stats.get("unique_graphs", 0),
            "graph_breaks": sum(breaks.values()),
            "graph_break_reasons": [reason.splitlines()[0] for reason in breaks][:_REASONS],
            "captured_calls": stats.get("calls_captured", 0),
            "cuda_graphs_skipped": count_since(before, "inductor").get("cudagraph_skips", 0),
            "linked_libstdcxx": library,
            "compile_phases_s": phases(),
        }

    def _compile_from(self, caches: Path) -> dict[str, object]:
        """Compile with the caches that an earlier process has left."""
        before = read_counters()
        start = time.perf_counter()
        self._compile(caches)
        counts = count_since(before, "inductor")
        return {
            "from_cache_seconds": time.perf_counter() - start,
            "cache_hits": counts.get("fxgraph_cache_hit", 0),
            "cache_misses": counts.get("fxgraph_cache_miss", 0)
            + counts.get("fxgraph_cache_bypass", 0),
        }

    def _compile(self, caches: Path) -> str | None:
        """Make the first requests; the library that the compiler had to be told of."""
        loaded, before = self.workspace.loaded, read_counters()
        what = f"torch.compile (mode {self.mode}) of {loaded.name}"
        with (
            _name_failure(what),
            time_limit(None, what),
            caches_in(caches),
            sound_compiler() as library,
            self.as_timed(),
        ):
            self.call()
            self.call()  # CUDA graphs are recorded, kernels loaded
        # Also where the caches are those of a process in which something was compiled.
        if not (count_since(before, "stats").get("unique_graphs") or list_called_graphs(self.run)):
            raise UnsupportedError(_say_why_nothing(loaded.name))
        return library

    def _judge_graphs(self, facts: Mapping[str, Any]) -> list[str]:
        warnings = []
        # Not facts["graphs"]: of a function that this process has compiled before none is made.
        called = {(id(item.home), item.name) for item in list_called_graphs(self.run)}
        if self.breaks or len(called) > 1:
            why = ", ".join(self.breaks[:_REASONS]) or "TORCH_LOGS=graph_breaks says where"
            warnings.append(
                f"torch.compile broke the model into {say_count(len(called), 'graph')} and code "
                f"that is not compiled ({why})"
            )
        elif facts["graphs"] > 1:
            warnings.append(
                f"torch.compile compiled the model {facts['graphs']} times: what it was compiled "
                "for had changed (TORCH_LOGS=recompiles says what)"
            )
        if facts["mode"] == "reduce-overhead" and facts["cuda_graphs_skipped"]:
            warnings.append(
                f"torch.compile ran {say_count(facts['cuda_graphs_skipped'], 'graph')} without a "
                "CUDA graph"
            )
        return warnings

    def _rehearse(self, request: Any) -> list[str]:
        """Requests as the timed loop makes them; what is wrong if they do not settle."""
        what = f"torch.compile (mode {self.mode}) of {self.workspace.loaded.name}"
        before = 0
        with _name_failure(what), time_limit(None, what), preserve_state(self.workspace.loaded):
            for _ in range(_REHEARSALS):
                before = _count_compilations()
                request()
        if _count_compilations() == before:
            return []
        return ["torch.compile still compiles after several requests: its latency has no meaning"]


@contextmanager
def _as_timed(workspace: Workspace) -> Iterator[None]:
    """The gradient mode and the stream of the timed loop."""
    # no_grad is no_grad also where the caller is in inference mode, as for the timed loop.
    mode = workspace.setting.grad_mode
    inference, grad = torch.inference_mode(mode == "inference"), mode == "grad"
    with enter_stream(workspace.stream), inference, torch.set_grad_enabled(grad):
        yield


@contextmanager
def _name_failure(what: str) -> Iterator[None]:
    try:
        with without_warnings():
            yield
    except FtaxError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(f"{what} failed: {describe_fault(error)}") from error


def _say_why_nothing(name: str) -> str:
    stance: str = torch._dynamo.eval_frame._stance.stance
    if torch._dynamo.config.disable or os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        return (
            f"torch.compile leaves {name} as it is: it is switched off, by TORCH_COMPILE_DISABLE, "
            "TORCHDYNAMO_DISABLE or torch._dynamo.config.disable"
        )
    if stance != "default":
        return (
            f"torch.compile leaves {name} as it is: torch.compiler.set_stance({stance!r}) is in "
            "effect"
        )
    return (
        f"torch.compile finds nothing to compile in {name}: it would be eager (if torch has given "
        "up such a call earlier in this process, torch._dynamo.reset() has it try again)"
    )


def _judge_cache(facts: Mapping[str, Any]) -> list[str]:
    if not facts["cache_misses"]:
        return []
    missed = say_count(facts["cache_misses"], "graph")
    return [f"the cache did not have {missed}, compiled again"]


def judge_rounds() -> list[str]:
    """Whether anything was compiled since the last preparation, and why."""
    extra = _count_compilations() - _settled.compilations
    if extra <= 0:
        return []
    reasons = Counter(_list_recompilations()) - Counter(_settled.reasons)
    why = f" ({next(iter(reasons))})" if reasons else ""
    return [
        f"torch.compile compiled {say_count(extra, 'time')} during the rounds: they are not its "
        f"latency{why}"
    ]


class _Settled(NamedTuple):
    """What had happened when the last preparation was done."""

    compilations: int = 0
    reasons: tuple[str, ...] = ()


_settled = _Settled()


def _settle() -> None:
    global _settled
    _settled = _Settled(_count_compilations(), tuple(_list_recompilations()))


def _list_recompilations() -> list[str]:
    """Why compiled code did not fit a call of this process, and which: the guard that failed."""
    from torch._dynamo.utils import guard_failures

    return [
        f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name} at "
        f"{Path(code.co_filename).name}:{code.co_firstlineno}: "
        f"{' '.join(str(reason).partition(': ')[2].split()) or reason}"
        for code, reasons in guard_failures.items()
        for reason in reasons
    ]


def _count_compilations() -> int:
    """Frames that TorchDynamo has translated in this process, whoever asked for it."""
    return read_counters().get("frames", {}).get("total", 0)
