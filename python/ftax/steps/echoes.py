"""What our TorchDispatchModes share: their base, and telling what one sees twice from what a model
calls twice.

Torch before 2.10 makes `detach` of a tensor that autograd could follow in two steps, and shows a
mode both: the second one detaches the first one's result. It is known by that result, which no
model ever gets to see in those versions. In later ones a model does.

Compiled code runs under a mode of ours as it was written, and stays compiled. A function that
torch.compile made and that is called under a TorchDispatchMode is given up by TorchDynamo: from
then on it runs as it was written, for the rest of the process, and no message says so. So while
there is a mode of ours, the one function that every compiled function asks what to do says
"nothing" to those that are called under it. It looks at the modes of the thread that calls, which
torch hands on to the threads of a backward pass, and not at who has switched on what: what other
threads call goes on compiled.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from ftax.steps.random_states import keep_drawing, list_own_generators

_THERE_ARE_ANY = torch.__version__ < "2.10"

_lock = threading.RLock()
_users = 0
_undo: list[Callable[[], object]] = []


class Watching:
    """A mode under which compiled code runs as it was written. ``met_compiled``: whether any was
    called."""

    met_compiled = False


def _begin() -> None:
    """There is one more mode."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            if "torch._dynamo.eval_frame" in sys.modules:
                _stand_in_dynamo()
            else:  # importing it takes seconds, which nobody who compiles nothing should wait for
                _replace(torch, "compile", _compile_later(torch.compile))


def _end() -> None:
    """There is one less."""
    global _users
    with _lock:
        _users -= 1
        while _users == 0 and _undo:
            _undo.pop()()


def _compile_later(compile_now: Callable[..., Any]) -> Callable[..., Any]:
    def compile_watched(*args: Any, **kwargs: Any) -> Any:
        importlib.import_module("torch._dynamo.eval_frame")
        with _lock:
            if _users and len(_undo) == 1:
                _stand_in_dynamo()
        return compile_now(*args, **kwargs)

    return compile_watched


def _stand_in_dynamo() -> None:
    dynamo: Any = sys.modules["torch._dynamo.eval_frame"]
    choose = dynamo._callback_from_stance

    def choose_watched(callback: Any) -> Any:
        watching = _find_watching()
        for mode in watching:
            mode.met_compiled |= callback is not None  # of a function that is not to be compiled
        return None if watching else choose(callback)

    _replace(dynamo, "_callback_from_stance", choose_watched)
    _replace(dynamo, "_stance", _Stance(dynamo._stance))


def _find_watching() -> list[Watching]:
    return [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, Watching)]


class _Stance:
    """torch's own, but that of nothing being compiled where we watch: a function that is to be one
    graph complains if no part of it was compiled, unless that was asked for."""

    def __init__(self, own: Any) -> None:
        self._own = own

    @property
    def stance(self) -> str:
        """Its name."""
        return "force_eager" if _find_watching() else str(self._own.stance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def _replace(place: Any, name: str, stand_in: Any) -> None:
    before = getattr(place, name)
    setattr(place, name, stand_in)

    def put_back() -> None:
        if getattr(place, name) is stand_in:
            setattr(place, name, before)

    _undo.append(put_back)


class PlainMode(TorchDispatchMode, Watching):
    """A mode that torch need not shield from its compiler: the shield alone imports all of
    torch._dynamo, which every fresh process would wait for. Operators that take functions
    (`torch.cond`, flex_attention) pass it whole, and so does what they call."""

    supports_higher_order_operators = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)  # type: ignore[no-untyped-call]
        look = vars(cls).get("__torch_dispatch__")
        if look is None:
            return

        def call(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(func, HigherOrderOperator):
                return self.pass_on(func, args, kwargs or {})
            return look(self, func, types, args, kwargs)

        def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not list_own_generators():
                return call(self, func, types, args, kwargs)
            with keep_drawing():
                return call(self, func, types, args, kwargs)

        cls.__torch_dispatch__ = dispatch  # type: ignore[method-assign]

    def pass_on(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator that takes functions."""
        return func(*args, **kwargs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __enter__(self) -> Self:
        _begin()
        return super().__enter__()  # type: ignore[no-any-return,no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        _end()


class Echoes:
    """Of one mode, which asks about each call before it makes it."""

    def __init__(self) -> None:
        self._detached: torch.Tensor | None = None

    def has(self, func: Any, args: Any) -> bool:
        """Whether this call is torch's own second step of the call before."""
        return func is torch.ops.aten.detach.default and args[0] is self._detached

    def keep(self, func: Any, args: Any, result: Any) -> Any:
        """The result of a call, which is looked for in the next one."""
        first_step = (
            _THERE_ARE_ANY
            and func is torch.ops.aten.detach.default
            and not self.has(func, args)
            and not args[0].is_inference()
        )
        self._detached = result if first_step else None
        return result
