"""The graphs that a call of compiled code runs, as TorchDynamo's bytecode calls them.

They are met where they are called, in the globals of the functions that the bytecode stands for, by
standing in for each of them during one call.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from ftax.steps.profiling_hook import watch_calls
from ftax.steps.reach import list_living_objects

_PREFIX = "__compiled_fn_"
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.*)_at_(\d+)")


class CalledGraph(NamedTuple):
    """A graph that a call ran: the globals where Dynamo's bytecode found it, under which name, and
    the arguments that it gave."""

    home: dict[str, Any]
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]


@contextmanager
def room_to_compile(more: int) -> Iterator[None]:
    """Inside, a function may be compiled so many times more than torch's limit allows: past it a
    function is given up for good, also for the one whose it is."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    config: Any = torch._dynamo.config
    names = ("recompile_limit", "accumulated_recompile_limit")
    with config.patch({name: getattr(config, name) + more for name in names}):
        yield


def list_called_graphs(run: Callable[[], object]) -> list[CalledGraph]:
    """Those that a call runs, in their order: none where a stance, a limit of compilations or a
    frame that Dynamo has given up leaves it as it was written."""
    called: list[CalledGraph] = []
    graphs = list(_list_graphs())

    def record(home: dict[str, Any], name: str, graph: Callable[..., Any]) -> Callable[..., Any]:
        def recorder(*args: Any) -> Any:
            called.append(CalledGraph(home, name, graph, args))
            return graph(*args)

        return torch.compiler.disable(recorder)  # type: ignore[no-any-return]

    try:
        for home, name, graph in graphs:
            home[name] = record(home, name, graph)
        run()
    finally:
        for home, name, graph in graphs:
            home[name] = graph
    return called


class Line(NamedTuple):
    """Of a function in a file."""

    file: str
    number: int
    function: str


def count_breaks(run: Callable[[], object]) -> Counter[Line]:
    """Where a call comes back to compiled code, and how often. TorchDynamo makes a function of what
    comes after a break, and names it so."""
    found: Counter[Line] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        place = _RESUMED.fullmatch(frame.f_code.co_name) if event == "call" else None
        if place is not None:
            found[Line(frame.f_code.co_filename, int(place[2]), place[1])] += 1

    _watch(note, run)
    return found


def list_breaks(run: Callable[[], object]) -> list[str]:
    """The places of `count_breaks`: "model.py:12 in forward"."""
    return [f"{Path(file).name}:{number} in {name}" for file, number, name in count_breaks(run)]


def find_causes() -> dict[Line, Line]:
    """Which line made compiled code break at a line: the innermost one that TorchDynamo was at, by
    all those that led there."""
    from torch._dynamo.utils import graph_break_reasons

    causes: dict[Line, Line] = {}
    for reason in graph_break_reasons:
        lines = [Line(item.filename, item.lineno or 0, item.name) for item in reason.user_stack]
        for line in lines:
            causes.setdefault(line, lines[-1])
    return causes


def find_asked_guards(run: Callable[[], object]) -> dict[CodeType, list[Any]]:
    """The trees of guards (torch's GuardManagerWrapper) of the compiled code that a call runs, by
    the code of the function that was compiled."""
    from torch._dynamo.convert_frame import input_codes
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.add(frame.f_code)

    _watch(note, run)
    found: dict[CodeType, list[Any]] = {}
    for code in [reference() for reference in input_codes.seen]:
        entries = [] if code is None else _debug_get_cache_entry_list(code)
        asked = [entry.guard_manager for entry in entries if entry.code in ran]
        if code is not None and asked:
            found[code] = asked
    return found


def _watch(see: Callable[[FrameType, str, Any], object], run: Callable[[], object]) -> None:
    watch_calls(torch.compiler.disable(see), run)  # else compiled like what it looks at


def _list_graphs() -> Iterator[tuple[dict[str, Any], str, Any]]:
    """All that bytecode of Dynamo's calls, in the globals of the functions that it stands for: of
    modules, and of code that was run by `exec`, as that of a `torch.fx.GraphModule`."""
    spaces = [getattr(module, "__dict__", None) for module in list(sys.modules.values())]
    spaces += (
        item for item in list_living_objects() if type(item) is dict and "__builtins__" in item
    )
    for home in {id(space): space for space in spaces if isinstance(space, dict)}.values():
        for key in [key for key in home if isinstance(key, str) and key.startswith(_PREFIX)]:
            yield home, key, home[key]
