"""Compiled code under a mode of ours: it runs as it was written, and stays compiled.

A function that torch.compile made and that is called under a TorchDispatchMode is given up by
TorchDynamo: from then on it runs as it was written, for the rest of the process, and nobody is
told. So while there is a mode of ours, the one function that every compiled function asks what to
do says "nothing" to those that are called under it. It looks at the modes of the thread that calls,
which torch hands on to the threads of a backward pass, and not at who has switched on what: what
other threads call goes on compiled.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_lock = threading.RLock()
_users = 0
_undo: list[Callable[[], object]] = []


class Watching:
    """A mode under which compiled code runs as it was written. ``met_compiled``: whether any was
    called."""

    met_compiled = False


def begin() -> None:
    """There is one more mode."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            if "torch._dynamo.eval_frame" in sys.modules:
                _stand_in_dynamo()
            else:  # importing it takes seconds, which nobody who compiles nothing should wait for
                _replace(torch, "compile", _compile_later(torch.compile))


def end() -> None:
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
