"""Modules of a model that do the same: twelve equal layers are one group.

A stack of Python tells which functions run, and not which modules they run for. So modules are of
one group if the same `forward` functions lead to them from the outside: what a stack cannot tell
apart is one group, and its name says what is in it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from torch import nn

from ftax.records.record import Count, Record

Function = tuple[str, str]  # file and qualified name
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleGroup(Record):
    """Modules that a stack does not tell apart.

    Attributes:
        name: their paths in one, "encoder.layer.*.attention.{key,value}"; "" for the model itself.
        kind: their class.
        paths: each of them; empty for code of modules that the model does not hold.
        calls: of all of them, in one call of the model.
    """

    name: str
    kind: str
    paths: tuple[str, ...] = ()
    calls: Count = 0


class EqualModules:
    """The groups of a model, and of a stack's functions which group they are in."""

    def __init__(self, root: nn.Module, calls: Mapping[str, int], *, calls_root: bool) -> None:
        """``calls`` are those of each path in one call of the model; where the call is no call of
        the root's forward (but of a function that has modules) it is not ``calls_root``."""
        members: dict[tuple[Function, ...], list[str]] = {}
        for path, chain in _list_chains(root, calls_root):
            members.setdefault(chain, []).append(path)
        self._chains = list(members)
        self._forwards = {function for chain in members for function in chain}
        self.groups = [
            ModuleGroup(
                name=join_paths(paths),
                kind=type(root.get_submodule(paths[0])).__name__ if paths[0] or calls_root else "",
                paths=tuple(paths),
                calls=sum(calls.get(path, 0) if path else 1 for path in paths),
            )
            for paths in members.values()
        ]

    @property
    def files(self) -> set[str]:
        """Where the forward functions stand."""
        return {file for file, _ in self._forwards}

    def find(self, functions: Iterable[Function]) -> int:
        """The group of the innermost module, from the functions of a stack, outermost first."""
        chain = tuple(function for function in functions if function in self._forwards)
        if not chain:
            return self._chains.index(()) if () in self._chains else 0
        found = [place for place, known in enumerate(self._chains) if known[-len(chain) :] == chain]
        exact = [place for place in found if self._chains[place] == chain]
        if len(exact or found) == 1:
            return (exact or found)[0]
        self._chains.append(chain)
        self.groups.append(ModuleGroup(name="?", kind=chain[-1][1].rpartition(".")[0]))
        return len(self.groups) - 1


def _list_chains(root: nn.Module, calls_root: bool) -> Iterator[tuple[str, tuple[Function, ...]]]:
    """Paths of modules, with the forward functions that are called from the outside up to their
    own. Modules that only hold others are left out."""
    chains: dict[str, tuple[Function, ...]] = {}
    for path, module in root.named_modules():
        own = _find_forward(module) if path or calls_root else None
        parent = chains[path.rpartition(".")[0]] if path else ()
        chains[path] = (*parent, own) if own else parent
        if own or not path:
            yield path, chains[path]


def _find_forward(module: nn.Module) -> Function | None:
    """None for modules that only hold others. Of a forward in C++ its class stands for it."""
    if getattr(type(module), "forward", None) is nn.Module.forward:
        return None
    code = getattr(inspect.unwrap(module.forward), "__code__", None)
    if code is None:
        return "", type(module).__qualname__
    return code.co_filename, code.co_qualname


def join_paths(paths: Sequence[str]) -> str:
    """``layer.*.{key,value}`` of ``layer.0.key``, ``layer.1.key``, ``layer.0.value``..."""
    patterns = list(dict.fromkeys(_NUMBER.sub("*", path) for path in paths))
    if len(patterns) == 1:
        return patterns[0]
    parts = [pattern.split(".") for pattern in patterns]
    levels = zip(*(part[:-1] for part in parts), strict=False)
    same = len(list(takewhile(lambda level: len({*level}) == 1, levels)))
    ends = [".".join(part[same:]) for part in parts]
    return ".".join([*parts[0][:same], f"{{{','.join(ends)}}}"])
