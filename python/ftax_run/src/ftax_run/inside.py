"""Looks in a program for the call to measure, or for its iterations: Python runs this file as
`sitecustomize` at its start.

The program's own Python runs it, where nothing of ours may be installed, so it needs Python's
library alone. It hands on to the `sitecustomize` that it stands before, and is then out of sight:
`__main__`, `sys.argv` and `sys.path` are as without.

A target is looked for when functions begin to run (`sys.monitoring`, before Python 3.12
`sys.setprofile`). Once it was met its calls are counted: a module's by a hook, a function's by code
that stands in for its own. So it is measured in the program's flow, with the arguments that it was
called with; below a callback of Python's profiling ftax could not follow calls.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
import os
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

monitoring: Any = getattr(sys, "monitoring", None)  # since Python 3.12

_FOLDER, _ITERATION = "FTAX_RUN_TARGETS", "FTAX_RUN_ITERATION"
_WARM_UP_CALLS, _WARM_UP_S = 20, 2.0
_SILENT_S = 10.0  # after which a better target is not waited for
_NO_PLAIN_FUNCTION = 0x20 | 0x80 | 0x100 | 0x200  # generators, coroutines


def hand_on(folder: str) -> None:
    """Let the `sitecustomize` run that Python would have found without this one."""
    while folder in sys.path:
        sys.path.remove(folder)
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


def _call_a_constant(*args: Any, **kwargs: Any) -> Any:
    """Stands in for a function; its constant is then what is called."""
    return "count".__call__(*args, **kwargs)  # type: ignore[operator]


class Target:
    """One that may be measured."""

    def __init__(self, file: str, line: int, name: str, is_module: bool, caller: str) -> None:
        self.file, self.line, self.name = file, line, name
        self.is_module, self.caller = is_module, caller
        self.is_met = self.is_refused = False
        self.calls, self.first, self.last = 0, 0.0, 0.0
        self.put_back: Callable[[], object] | None = None  # has its calls be the program's again

    def is_of(self, code: types.CodeType) -> bool:
        """Whether this is its code."""
        return (
            code.co_qualname == self.name
            and code.co_filename == self.file
            and any(line == self.line for _, _, line in code.co_lines())
        )

    def count(self) -> bool:
        """One more call; whether it is warm."""
        now = time.monotonic()
        self.calls += 1
        self.first, self.last = self.first or now, now
        return self.calls > _WARM_UP_CALLS or (self.calls > 2 and now - self.first > _WARM_UP_S)

    def is_worth_waiting(self) -> bool:
        """Whether it is called again and again, so that it is measured before worse ones."""
        return not self.is_refused and self.calls > 1 and time.monotonic() - self.last < _SILENT_S


def stand_in(
    function: types.FunctionType, make: Callable[[types.FunctionType], Callable[..., Any]]
) -> types.CodeType:
    """Code that calls what ``make`` gives for the function as it was."""
    code = function.__code__
    original = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    name = "__annotate__" if hasattr(function, "__annotate__") else "__annotations__"  # from 3.14
    setattr(original, name, getattr(function, name))
    called = make(original)
    calling = _call_a_constant.__code__
    constants = tuple(called if item == "count" else item for item in calling.co_consts)
    return calling.replace(
        co_consts=constants, co_freevars=code.co_freevars, co_name=code.co_name,
        co_qualname=code.co_qualname, co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )  # fmt: skip


def find_functions(code: types.CodeType) -> list[types.FunctionType]:
    """Those that have this code."""
    return [item for item in gc.get_referrers(code)
            if isinstance(item, types.FunctionType) and item.__code__ is code]  # fmt: skip


class Looking:
    """Is told when functions of certain ``names`` begin to run."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.tool: int | None = None
        self.is_looking = False

    def meet(self, frame: types.FrameType) -> None:
        """One begins."""
        raise NotImplementedError

    def begin(self) -> None:
        """Be told when functions begin to run."""
        if monitoring is not None:
            free = [tool for tool in (4, 3, 1, 0) if monitoring.get_tool(tool) is None]
            self.tool = free[0]
            monitoring.use_tool_id(self.tool, "ftax run")
            event = monitoring.events.PY_START
            monitoring.register_callback(self.tool, event, self._see_start)
            monitoring.set_events(self.tool, event)
            monitoring.restart_events()
        else:
            self.is_looking = True
            threading.setprofile(self._see_event)
            sys.setprofile(self._see_event)

    def stop(self) -> None:
        """Be told no longer."""
        if self.tool is not None:
            monitoring.set_events(self.tool, 0)
            monitoring.free_tool_id(self.tool)
            self.tool = None
        elif self.is_looking:
            self.is_looking = False
            threading.setprofile(None)
            if sys.getprofile() == self._see_event:
                sys.setprofile(None)

    def _see_event(self, frame: types.FrameType, event: str, _argument: object) -> None:
        if not self.is_looking:  # another thread has ended it
            sys.setprofile(None)
        elif event == "call" and frame.f_code.co_qualname in self.names:
            self.meet(frame)

    def _see_start(self, code: types.CodeType, _offset: int) -> Any:
        if code.co_qualname in self.names:
            self.meet(sys._getframe(1))
        return monitoring.DISABLE


class Marking(Looking):
    """Has each call of ``module:function`` be an iteration, from its second on."""

    def __init__(self, place: str) -> None:
        self.module, _, name = place.partition(":")
        super().__init__([name])
        path = os.path.join(os.path.dirname(__file__), "iteration.py")
        spec: Any = importlib.util.spec_from_file_location("_ftax_run_iteration", path)
        self.marks = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.marks)

    def meet(self, frame: types.FrameType) -> None:
        """Once."""
        code = frame.f_code
        if frame.f_globals.get("__name__") != self.module or code.co_flags & _NO_PLAIN_FUNCTION:
            return
        self.stop()
        for function in find_functions(code):
            self._mark_calls(function)

    def _mark_calls(self, function: types.FunctionType) -> None:
        """Within a call the function is as it was, so that a recursion is no deeper."""

        def make(original: types.FunctionType) -> Callable[..., Any]:
            def mark(*args: Any, **kwargs: Any) -> Any:
                function.__code__ = original.__code__
                try:
                    with self.marks.iteration():
                        return original(*args, **kwargs)
                finally:
                    function.__code__ = standing

            function.__dict__.setdefault("__wrapped__", original)  # for who asks for its signature
            return mark

        standing = stand_in(function, make)
        function.__code__ = standing


class Waiting(Looking):
    """For the best target that is called often enough; ``folder`` is where the answer goes."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        order = json.loads((self.folder / "order.json").read_text())
        self.path, self.plan = order["path"], order["plan"]
        self.python_path = order["python_path"]
        self.targets = [Target(*target) for target in order["targets"]]
        super().__init__(target.name for target in self.targets)

    def end(self) -> None:
        """Calls of all targets are the program's again."""
        self.stop()
        for target in self.targets:
            if target.put_back is not None:
                target.put_back()
                target.put_back = None

    def meet(self, frame: types.FrameType) -> None:
        """Follow the calls of its target."""
        code = frame.f_code
        for target in self.targets:
            if not target.is_met and target.is_of(code):
                target.is_met = True
                if code.co_flags & _NO_PLAIN_FUNCTION:
                    self.refuse(target, "is a coroutine or a generator")
                elif target.is_module:
                    self._follow_module(target, frame)
                else:
                    self._follow_function(target, code)

    def _follow_module(self, target: Target, frame: types.FrameType) -> None:
        module: Any = frame.f_locals[frame.f_code.co_varnames[0]]
        if not hasattr(module, "register_forward_pre_hook"):
            self.refuse(target, "is given no module")
            return

        def count(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.is_due(target):
                self.measure(target, module, args, kwargs)

        handle = module.register_forward_pre_hook(count, prepend=True, with_kwargs=True)
        target.put_back = handle.remove

    def _follow_function(self, target: Target, code: types.CodeType) -> None:
        functions = find_functions(code)

        def put_back() -> None:
            for function in functions:
                function.__code__ = code

        for function in functions:
            function.__code__ = stand_in(function, functools.partial(self._count, target, function))
        target.put_back = put_back

    def _count(
        self, target: Target, function: types.FunctionType, original: types.FunctionType
    ) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            if self.is_due(target):
                self.measure(target, function, args, kwargs)
            return original(*args, **kwargs)

        return count

    def is_due(self, target: Target) -> bool:
        """Whether this call is the one to measure."""
        better = self.targets[: self.targets.index(target)]
        return (
            target.count()
            and not target.is_refused
            and not any(other.is_worth_waiting() for other in better)
        )

    def measure(
        self, target: Target, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """In one process and thread alone; does not return where it can be measured."""
        refused, claimed = self.folder / "refused", self.folder / "claimed"
        key = f"{target.file}:{target.line}"
        try:
            os.close(os.open(claimed, os.O_CREAT | os.O_EXCL))
        except OSError:
            return
        if refused.exists() and key in refused.read_text().splitlines():  # in another process
            target.is_refused = True
            claimed.unlink()
            return
        self.end()
        hooked = os.environ.pop("PYTHONPATH", None)
        if self.python_path is not None:
            os.environ["PYTHONPATH"] = self.python_path

        def finish(problem: str) -> None:
            if not problem:
                (self.folder / "measured").write_text(str(os.getpid()))
                while True:  # who started the program ends it
                    time.sleep(60)
            target.is_refused = True
            with refused.open("a") as file:
                file.write(f"{key}\n")
            print(f"It cannot be measured: {problem}", file=sys.stderr, flush=True)
            if hooked is not None:
                os.environ["PYTHONPATH"] = hooked
            claimed.unlink()
            for other in self.targets:
                other.is_met = other.is_refused
            self.begin()

        try:  # of the program's environment, which ours need not be
            inside = importlib.import_module("ftax.cli.program_call")
        except ImportError as error:
            finish(f"{sys.executable} cannot import ftax as new as ftax run ({error})")
            return
        inside.measure_call(
            what, args, kwargs, name=target.name, caller=target.caller, path=self.path,
            plan=self.plan, finish=finish,
        )  # fmt: skip

    def refuse(self, target: Target, problem: str) -> None:
        """It is nothing to measure, which is said if nothing else is."""
        target.is_refused = True
        with (self.folder / "problems").open("a") as file:
            file.write(f"{target.name}, called at {target.caller}, {problem}\n")


if __name__ == "sitecustomize":
    hand_on(os.path.dirname(__file__))
    if sys.hexversion < 0x030B0000:
        pass  # its frames are not known either, which is said
    elif "resource_tracker" in " ".join(sys.orig_argv):  # of a program that is ended on purpose
        warnings.filterwarnings("ignore", "resource_tracker: There appear to be")
    elif _ITERATION in os.environ:
        Marking(os.environ[_ITERATION]).begin()
    elif os.path.isfile(os.path.join(os.environ.get(_FOLDER, ""), "order.json")):
        Waiting(os.environ[_FOLDER]).begin()
