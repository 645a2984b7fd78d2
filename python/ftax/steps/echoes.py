"""What our TorchDispatchModes share: their base, and telling what one sees twice from what a model
calls twice.

Torch before 2.10 makes `detach` of a tensor that autograd could follow in two steps, and shows a
mode both: the second one detaches the first one's result. It is known by that result, which no
model ever gets to see in those versions. In later ones a model does.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from ftax.steps import as_written
from ftax.steps.as_written import Watching
from ftax.steps.random_states import keep_drawing, list_own_generators

_THERE_ARE_ANY = torch.__version__ < "2.10"


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
        as_written.begin()
        return super().__enter__()  # type: ignore[no-any-return,no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        as_written.end()


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
