"""Looks on while modules are called, whichever they are: by torch's global hooks.

A warning of torch is kept from the user. A compiled module tells of global hooks that they see it
besides what it was compiled of, which is what these are for.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


@contextmanager
def watch_module_calls(
    enter: Callable[[nn.Module, Any], None],
    leave: Callable[[nn.Module, Any, Any], None] | None = None,
) -> Iterator[None]:
    """Inside, ``enter`` is told of each module's forward before it begins, and ``leave`` when it
    has ended, whether or not it raised: of this thread, and of backward passes."""
    thread = threading.get_ident()

    def is_here() -> bool:
        return threading.get_ident() == thread or torch._C._current_graph_task_id() >= 0

    def begin(part: nn.Module, inputs: Any) -> None:
        if is_here():
            enter(part, inputs)

    def end(part: nn.Module, inputs: Any, output: Any) -> None:
        if leave is not None and is_here():
            leave(part, inputs, output)

    handles = [register_module_forward_pre_hook(begin)]
    if leave is not None:
        handles.append(register_module_forward_hook(end, always_call=True))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Using `torch.compile")
            yield
    finally:
        for handle in handles:
            handle.remove()
