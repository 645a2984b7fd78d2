"""What a guard need not look into: what cannot change, and what a library keeps for itself.

The surprising choice: what torch keeps changes all the time and decides nothing, so that whole
library is passed by, except what it has users derive from or hand their numbers to.
"""

from __future__ import annotations

import enum
import logging
import types
from collections import namedtuple

import numpy as np
import torch
from torch import nn

from ftax import _core
from ftax.steps.reach import HOLDERS, is_library_module

# What Python itself keeps in each module, and in each class.
OF_EACH_MODULE = frozenset(vars(types.ModuleType("any"))) | {
    "__builtins__",
    "__file__",
    "__path__",
}
OF_EACH_CLASS = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
        *("__slots__", "__match_args__", "__dataclass_fields__", "__dataclass_params__"),
        *("__abstractmethods__", "__parameters__", "__orig_bases__", "__hash__", "__new__"),
        *("__static_attributes__", "__firstlineno__", "__annotate__", "__annotations_cache__"),
    )
)
_Pair = namedtuple("_Pair", "first")
# What cannot be changed, or leads to nothing that a forward pass reads.
_INERT = (type, types.BuiltinFunctionType, types.ModuleType, types.MethodDescriptorType)
_FOLLOWED = (
    *(nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler),
    torch.amp.GradScaler,
)
_FIXED = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodWrapperType, np.generic),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, property, classmethod),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, type(_Pair.first)),
    *(staticmethod, enum.Enum, logging.Logger),
)


def is_fixed(value: object) -> bool:
    """Whether an object is a function, or another thing of which nothing can change that a result
    may depend on."""
    return isinstance(value, _FIXED)


def is_inert(value: object) -> bool:
    """Whether nothing that a result may depend on can be reached from it."""
    return value is None or isinstance(value, _INERT) or _core.is_plain_value(value)


def is_inert_global(value: object) -> bool:
    """A function, class or module, of which no more than its identity could be said."""
    return isinstance(value, (types.FunctionType, *_INERT))


def is_of_library(value: object) -> bool:
    """Whether an object is of torch or of Python's own library, which keep much that changes and
    decides nothing; not so what torch has users derive from or hand their numbers to."""
    if isinstance(value, (*_FOLLOWED, *HOLDERS)):
        return False
    if isinstance(value, types.ModuleType):
        return is_library_name(value.__name__)
    return is_library_class(type(value))


def is_library_class(kind: type) -> bool:
    """Whether a class and all that it derives from are of a library; that of a
    `torch.fx.GraphModule` is made for it, as libraries make classes that derive from a user's
    (`register_parametrization`, `types.new_class`)."""
    is_made = issubclass(kind, torch.fx.GraphModule) and kind is not torch.fx.GraphModule
    return not is_made and all(is_library_name(base.__module__) for base in kind.__mro__)


def is_library_name(module: object) -> bool:
    """Whether a Python module of this name is torch's, Python's or ftax's."""
    return is_library_module(module) or str(module).startswith("_pytest.")
