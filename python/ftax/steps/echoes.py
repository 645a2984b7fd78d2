"""What our TorchDispatchModes share: their base, and telling what one sees twice from what a model
calls twice.

A function that torch.compile made and that runs under a mode is given up by TorchDynamo: from then
on it runs as it was written, for the rest of the process, and nobody is told. So under ours it runs
as it was written from the outset, which leaves what was compiled as it is.

Torch before 2.10 makes `detach` of a tensor that autograd could follow in two steps, and shows a
mode both: the second one detaches the first one's result. The surprising choice: it is known by
that result, which no model ever gets to see in those versions. In later ones a model does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_THERE_ARE_ANY = torch.__version__ < "2.10"


class PlainMode(TorchDispatchMode):
    """A mode that torch need not shield from its compiler: the shield alone imports all of
    torch._dynamo, which every fresh process would wait for.

    ``met_compiled``: whether a function was called in it that torch.compile made.
    """

    met_compiled = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __enter__(self) -> Self:
        self._scope = self._run_as_written()
        self._scope.__enter__()
        return super().__enter__()  # type: ignore[no-any-return,no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._scope.__exit__(None, None, None)

    @contextmanager
    def _run_as_written(self) -> Iterator[None]:
        dynamo: Any = sys.modules.get("torch._dynamo.eval_frame")
        if dynamo is None:  # nobody has compiled anything
            yield
            return
        choose = dynamo._callback_from_stance  # which each compiled function asks

        def note(callback: Any) -> Any:
            self.met_compiled |= callback is not None  # of a function that is not to be compiled
            return choose(callback)

        dynamo._callback_from_stance = note
        try:
            with torch.compiler.set_stance("force_eager"):
                yield
        finally:
            dynamo._callback_from_stance = choose


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
