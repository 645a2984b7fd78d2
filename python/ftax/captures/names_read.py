"""Which names of an object, a class or a module can have been read by code that ran.

They are the names that stand in the code, or all where it makes names up; and names that it asks
for and that are not there yet.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping

import torch
from torch import nn

from ftax.captures.inert import OF_EACH_CLASS, OF_EACH_MODULE, is_inert_global, is_library_class
from ftax.captures.names import list_asked, list_global_names, list_names
from ftax.steps.reach import HOLDERS, is_library, list_co_names

_MODULE_STATE = frozenset(
    (
        *("training", "forward", "_parameters", "_buffers", "_modules", "_backward_hooks"),
        *("_backward_pre_hooks", "_forward_hooks", "_forward_hooks_with_kwargs"),
        *("_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    )
)
# What counts calls beside a step. Only names that stand in code read it: models of transformers
# make names up, and each count would then be a part of the step.
_COUNTING = (torch.optim.lr_scheduler.LRScheduler,)


class NamesRead:
    """Names that ``codes`` can have read; any name, if the code ``makes_names``."""

    def __init__(self, codes: Collection[types.CodeType], *, makes_names: bool) -> None:
        self.makes_names = makes_names
        self._ran = frozenset(map(id, codes))
        self._written, self._asked = list_names(codes), list_asked(codes)

    def has_run(self, code: object) -> bool:
        """Whether this code ran."""
        return id(code) in self._ran

    def can_be(self, name: str) -> bool:
        """Whether code can have read this name of something."""
        return self.makes_names or name in self._written

    def can_be_any(self, owner: object) -> bool:
        """Whether code can have read every attribute of ``owner``."""
        return self.makes_names and not isinstance(owner, _COUNTING)

    def list_asked(self, space: Mapping[str, object]) -> list[str]:
        """Names that code asks for and that are not there."""
        return sorted(self._asked.difference(space))

    def list_in_module(self, space: Mapping[str, object]) -> list[str]:
        """Those of a Python module; of modules in it, those that stand in code."""
        return [
            key
            for key, value in space.items()
            if key not in OF_EACH_MODULE
            and (key in self._written if isinstance(value, types.ModuleType) else self.can_be(key))
        ]

    def list_in_object(self, owner: object, space: Mapping[str, object]) -> list[str]:
        """Those of the attributes of ``owner``."""
        if self.can_be_any(owner):
            return list(space)
        state: frozenset[str] = _MODULE_STATE if isinstance(owner, nn.Module) else frozenset()
        return [key for key in space if key in self._written or key in state]

    def list_missing(self, owner: object, space: Mapping[str, object]) -> list[str]:
        """Names that code reads of ``owner`` and that are not there: those for which it asks, those
        of the class, which an attribute of the object would hide, and, of an object that is a bag
        of attributes or makes them up, all."""
        if isinstance(owner, HOLDERS) or _makes_attributes(type(owner)):
            return [key for key in self._written if key not in space]
        found = [key for kind in type(owner).__mro__ for key in vars(kind)]
        known = [key for key in dict.fromkeys(found) if key in self._written and key not in space]
        missing = [key for key in known if not key.startswith("__")]
        return [*missing, *sorted(self._asked.difference(space, missing))]

    def list_in_class(
        self, space: Mapping[str, object], behind: Mapping[str, object]
    ) -> tuple[list[str], list[str]]:
        """Those of a class, methods too; and those that it lacks: of classes that come later, whose
        names are in ``behind``, or of none."""
        keys = [key for key, value in space.items() if self._is_read(key, value)]
        missing = [key for key, value in behind.items() if self._is_read(key, value)]
        return keys, [key for key in (*missing, *sorted(self._asked)) if key not in space]

    def _is_read(self, key: str, value: object) -> bool:
        """Whether code that ran can have read this of a class."""
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if self.has_run(getattr(function, "__code__", None)):
            return True
        is_own = key.startswith("__") and (callable(value) or hasattr(type(value), "__get__"))
        if is_own or key in OF_EACH_CLASS:
            return False
        return self.can_be(key)


def list_globals(code: types.CodeType, space: Mapping[str, object]) -> list[str]:
    """Globals that ``code`` can have read, without functions and classes of libraries: no program
    replaces those between two calls, and there are thousands."""
    own = not is_library(code.co_filename)
    named = set(list_global_names(code) if own else list_co_names(code))
    if own and "globals" in named:  # by any name
        named.update(key for key in space if not is_inert_global(space[key]))
    return [
        name
        for name in sorted(named)
        if name not in OF_EACH_MODULE
        and (own or (name in space and not is_inert_global(space[name])))
    ]


def _makes_attributes(kind: type) -> bool:
    """Whether a method of the user's answers for attributes that are not there."""
    owner = next((base for base in kind.__mro__ if "__getattr__" in vars(base)), None)
    return owner is not None and not is_library_class(owner)
