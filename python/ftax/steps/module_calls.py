"""Looks on while modules are called, whichever they are: by torch's global hooks.

The surprising choice: a warning of torch is kept from the user. A compiled module tells of global
hooks that they see it besides what it was compiled of, which is what these are for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


@contextmanager
def watch_module_calls(
    enter: Callable[[nn.Module, Any], None],
    leave: Callable[[nn.Module, Any, Any], None] | None = None,
) -> Iterator[None]:
    """Inside, ``enter`` is told of each module's forward before it begins, and ``leave`` when it
    has ended, whether or not it raised."""
    handles = [register_module_forward_pre_hook(enter)]
    if leave is not None:
        handles.append(register_module_forward_hook(leave, always_call=True))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Using `torch.compile")
            yield
    finally:
        for handle in handles:
            handle.remove()
