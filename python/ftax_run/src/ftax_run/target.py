"""Which call of a program its receipt measures: the hottest module, or the function around it.

Stacks are followed from the outermost frame, each time into the function of the program, or the
module that it calls, that holds most of the exposed idle (of a program without a device: of the
time). What is on the way may be measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftax_run.account import Account
from ftax_run.frames import Place, is_users, name_place
from ftax_run.sums import Sums

_LEAST = 0.01  # of all, that a call on the way holds
_MOST = 0.5  # of all, that the call to measure should hold
_PATHS = 3
_MODULE_CALL = "/torch/nn/modules/module.py"
_BACKWARD = ("/torch/_tensor.py", "/torch/autograd/__init__.py")


@dataclass(frozen=True, slots=True)
class Target:
    """A function of the program, or the forward pass of a module."""

    file: str
    line: int  # one that was seen to run, by which it is told from others of its name
    name: str  # with its class: "Model.forward"
    is_module: bool
    share: float  # of all exposed idle
    caller: str  # the line of the program from which it is called

    @property
    def key(self) -> tuple[str, str]:
        """What its frames have in common."""
        return self.file, self.name


def list_targets(account: Account) -> list[Target]:
    """The best first. Where that one cannot be measured the next is taken: what it calls; then what
    takes time beside it, since what takes most may run once; at last what calls these."""
    process = account.find_main()
    if process is None:
        return []
    stacks = process.find_steady().stacks if process.windows else process.host.stacks
    total = sum(weight for stack, weight in stacks.items() if any(_list_calls(stack)))
    inward: list[Target] = []
    outward: list[Target] = []
    for _ in range(_PATHS):
        path = _find_path(stacks, total)
        if not path:
            break
        first = _choose(path, stacks)
        inward += path[first:]
        outward += [target for target in reversed(path[:first]) if not target.is_module]
        beside = path[first].key
        stacks = Sums({stack: weight for stack, weight in stacks.items()
                       if beside not in _list_keys(stack)})  # fmt: skip
    return list({target.key: target for target in reversed(inward + outward)}.values())[::-1]


def _choose(path: list[Target], stacks: Sums[tuple[Place, ...]]) -> int:
    """Of training the innermost function that calls the backward pass; else the outermost module
    that holds half of all; else the innermost function that does."""
    backward = [(_list_keys(stack), weight) for stack, weight in stacks.items()
                if any(file.endswith(_BACKWARD) and name.endswith("backward")
                       for file, _, name in stack)]  # fmt: skip
    total = sum(weight for _, weight in backward)
    for place, target in reversed(list(enumerate(path))):
        below = sum(weight for keys, weight in backward if target.key in keys)
        if total and not target.is_module and below >= _MOST * total:
            return place
    large = [place for place, target in enumerate(path) if target.share >= _MOST]
    modules = [place for place in large if path[place].is_module]
    return min(modules) if modules else max(large, default=0)


def _list_keys(stack: tuple[Place, ...]) -> set[tuple[str, str]]:
    return {(file, name) for file, _, name in stack}


@dataclass(frozen=True, slots=True)
class _Call:
    """A frame of a stack that may be measured."""

    place: Place
    is_module: bool
    caller: Place

    @property
    def key(self) -> tuple[str, str]:
        return self.place[0], self.place[2]


def _find_path(stacks: Sums[tuple[Place, ...]], total: float) -> list[Target]:
    """From the outermost, into what holds most of the rest each time."""
    chains = [(list(_list_calls(stack)), weight) for stack, weight in stacks.items()]
    path: list[Target] = []
    while True:
        chains = [(calls, weight) for calls, weight in chains if len(calls) > len(path)]
        sums: Sums[tuple[str, str]] = Sums()
        for calls, weight in chains:
            sums[calls[len(path)].key] += weight
        key, weight = sums.list_largest(1)[0] if sums else (("", ""), 0.0)
        if not weight or weight < _LEAST * total:
            return path
        chains = [(calls, weight) for calls, weight in chains if calls[len(path)].key == key]
        usual: Sums[_Call] = Sums()
        for calls, amount in chains:
            usual[calls[len(path)]] += amount
        call = usual.list_largest(1)[0][0]
        caller = name_place(call.caller)
        path.append(Target(*call.place, call.is_module, weight / total, caller))


def _list_calls(stack: tuple[Place, ...]) -> Iterator[_Call]:
    """Functions of the program down to the first module, and modules, each once."""
    met: set[tuple[str, str]] = set()
    is_called = is_within = False
    caller: Place | None = None
    for place in stack:
        file, _, name = place
        last = name.rpartition(".")[2]
        if file.endswith(_MODULE_CALL):
            is_called |= last == "_call_impl"
            continue
        is_module = is_called and last == "forward"
        is_function = is_users(file) and not is_within and not last.startswith("<")
        if (is_module or is_function) and (file, name) not in met:
            met.add((file, name))
            yield _Call(place, is_module, caller or place)
        if is_module:
            is_called, is_within = False, True
        if is_users(file):
            caller = place
