"""The function that is recorded in the place of the one that is captured: it takes tensors, returns
tensors, and notes what the real one did and returned around them."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.captures import host_reads
from ftax.captures.around import refuse_draws
from ftax.captures.executed import Executed, watch_code
from ftax.captures.gradients import Gradients
from ftax.captures.guards import KeptTensor
from ftax.captures.names import list_names
from ftax.captures.program import TENSOR, ReadLater, is_made
from ftax.captures.returned_reads import NAMES, Call, Number, Scope, Use, find_returned_reads
from ftax.errors import UnsupportedError
from ftax.steps.kept_python import read_draws
from ftax.steps.loaded import LoadedModel
from ftax.steps.reach import is_library
from ftax.steps.writes import list_storages


class Recorded:
    """One call, with what was seen of it."""

    hands_gradients = False  # to autograd, which adds them to those of weights

    def __init__(
        self,
        what: Callable[..., Any],
        signature: _core.Signature,
        tensors: list[torch.Tensor],
        *,
        name: str,
        is_alone: bool,
    ) -> None:
        self.original, self._signature = what, signature
        self.name, self._is_alone, self._may_draw = name, is_alone, is_alone
        self.kept: tuple[KeptTensor, ...] = ()
        self.mode: AbstractContextManager[Any] = nullcontext()  # around the call alone
        self._kept_before: list[Any] = []  # what was there when a run began, held
        self.gradients = Gradients(added=(), made=(), dropped=())
        self.found: list[tuple[torch.Tensor, torch.Tensor | None]] = []  # gradients of leaves
        # Of random numbers, not torch's, and whether names of the call lead to each.
        self.sources: list[tuple[Any, bool]] = []
        self.drawn: list[Any] = []  # from which it drew
        self.attributes: list[str] = []  # of Python, of tensors among the arguments
        self.tree: pytree.TreeSpec | None = None
        self.leaves: tuple[Any, ...] = ()
        self.followed: list[torch.Tensor] = []  # results that autograd has made
        self.is_watched = self.is_followed = self.resized = self.is_lazy = self.is_other = False
        self._parameters = [isinstance(tensor, nn.Parameter) for tensor in tensors]
        self._layouts = [_layout(tensor) for tensor in tensors]
        self.executed = Executed(codes=(), changing=())
        self.functions: list[FunctionType] = []  # that live and have code that ran
        self.reads = host_reads.MemoryReads()
        self.read_later: Call | None = None  # numbers that it returns
        self.number_uses: Sequence[Use] = ()  # of others that it reads

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Its results, gradients, and tensors that it leaves in Python."""
        if any(self._parameters):  # a second input that was drawn is none
            pairs = zip(tensors, self._parameters, strict=True)
            tensors = tuple(_make_parameter(item) if is_one else item for item, is_one in pairs)
        args, kwargs = self._signature.fill(list(tensors))
        for leaf, grad in self.found:  # each run begins as the call that is recorded
            if leaf.grad is not grad:
                leaf.grad = grad
        self._drop_gradients(tensors)
        self._kept_before += [place.read() for place in self.kept]
        if self.is_watched:
            memory = [tensor.data_ptr() for tensor in tensors]
            draws = [read_draws(source) for source, _ in self.sources]
            result, self.executed = watch_code(lambda: self._call(args, kwargs))
            now = zip(self.sources, draws, strict=True)
            self.drawn = [
                source
                for (source, is_met), before in now
                if read_draws(source) != before and (is_met or self._may_have_drawn(source))
            ]
            self.resized = memory != [tensor.data_ptr() for tensor in tensors]
            self.resized |= self._layouts != [_layout(tensor) for tensor in tensors]
            found = self._signature.match(args, kwargs)
            self.attributes = sorted({key for item in tensors for key in vars(item)})
            self.is_other = found is None or any(map(operator.is_not, found, tensors))
        else:
            result = self._call(args, kwargs)
        leaves, self.tree = pytree.tree_flatten(result, is_leaf=is_size)
        self.leaves = tuple(map(_describe_leaf, leaves))
        leaves = [leaf.tensor if isinstance(leaf, Number) else leaf for leaf in leaves]
        found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if self.is_followed:
            unique = {id(tensor): tensor for tensor in found if tensor.requires_grad}
            self.followed = [*unique.values()]
        self.is_lazy = any(tensor.is_conj() or tensor.is_neg() for tensor in found)
        results = [*found, *self.gradients.collect(), *(place.read() for place in self.kept)]
        # What only writes is checked by what it wrote, but a step has to return something.
        return results or [next(iter(tensors), torch.zeros(()))]

    def _may_have_drawn(self, source: Any) -> bool:
        """Whether it was this call that drew from a source of the process, as others do."""
        if self._is_alone:
            return True
        is_pythons = isinstance(source, random.Random)
        return bool(self.executed.draws) if is_pythons else self.executed.names_random

    @property
    def hint(self) -> str:
        """What is worth knowing of a refused read."""
        plain = [leaf for leaf in self.leaves if isinstance(leaf, bool | int | float)]
        if not plain or any(self.find_print(item.read) for item in self.number_uses):
            return ""
        used = next((f", and {item.use} uses one" for item in self.number_uses if item.use), "")
        return (
            f". It returns a number ({plain[0]!r}){used}: return the tensor, and call .item() on "
            "what the capture gives"
        )

    def _drop_gradients(self, tensors: Sequence[torch.Tensor]) -> None:
        """Of the second input, which a run before has left there."""
        known = {id(leaf) for leaf, _ in self.found}
        for tensor in tensors:
            if tensor.is_leaf and tensor.requires_grad and self.found and id(tensor) not in known:
                tensor.grad = None

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._may_draw:
            with self.mode:
                return self._call_original(args, kwargs)
        with refuse_draws(self.name):
            result = self._call_original(args, kwargs)
        self._may_draw = True  # and does not
        return result

    def _call_original(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.read_later is None:
            return self.original(*args, **kwargs)
        return self.read_later(self.original, args, kwargs)

    def find_returned_reads(self, run: Callable[[], None], device: str) -> None:
        """From now on give the numbers that are read of tensors and only returned as tensors.
        ``run`` runs the call."""
        has_numbers = any(isinstance(leaf, bool | int | float) for leaf in self.leaves)
        spaces = {
            id(space): space
            for code, space in self.executed.spaces
            if not is_library(code.co_filename) and not NAMES.isdisjoint(code.co_names)
        }
        if not spaces or not (has_numbers or self.executed.printing):
            return
        # Other threads would meet what stands in the place of `float`.
        own = [*spaces.values()] if self._is_alone else []
        scope = Scope(torch.device(device).type, own, {})

        def make_run(call: Call) -> None:
            self.read_later = call
            run()

        found: Call | None = None
        try:
            found = find_returned_reads(make_run, scope, self.name)
        finally:
            self.read_later = found
            self.number_uses = [*scope.skipped.values()]

    def explain_failure(self, loaded: LoadedModel, error: UnsupportedError) -> UnsupportedError:
        """Why it could not be recorded."""
        return host_reads.explain_failure(loaded, error, self.find_print, self.executed.text)

    def find_print(self, line: str) -> str:
        """The line that prints what is read at ``line``, if any does."""
        lines = [line, *(item.use for item in self.number_uses if item.read == line)]
        places = self.executed.printing
        return next((item for item in lines if any(p.holds(item) for p in places)), "")

    def uses_gradients(self, loaded: LoadedModel) -> bool:
        """Without autograd too: an optimizer drops gradients, and evolution strategies assign
        them."""
        return loaded.has_autograd or "grad" in list_names(self.executed.codes)

    def find_used_again(self, tape: _core.Tape) -> str:
        """The name of a place whose tensor of the call before is used by the tape; "" for none."""
        constants = {key for _, item in tape.constants for key in list_storages(item)}
        held = zip(cycle(self.kept), self._kept_before, strict=False)
        for place, item in held:
            if isinstance(item, torch.Tensor) and not constants.isdisjoint(list_storages(item)):
                return place.name
        return ""

    def list_places(self, reads: int, outputs: int) -> list[int]:
        """Of what is handed out among all that the tape gives: results, gradients, tensors that are
        kept, and at its end values that were read. Between them is the state that was written."""
        end = self.list_gradients().stop + len(self.kept)
        return [*range(end), *range(outputs - reads, outputs)]

    def list_gradients(self) -> range:
        """Of gradients, which follow the results."""
        results = sum(map(is_made, self.leaves))
        return range(results, results + len(self.gradients.made))


def _describe_leaf(leaf: object) -> object:
    if isinstance(leaf, Number):
        return ReadLater(leaf.convert)
    return TENSOR if isinstance(leaf, torch.Tensor) else leaf


def is_size(value: object) -> bool:
    """Whether it is no container here."""
    return isinstance(value, torch.Size)


def _make_parameter(tensor: torch.Tensor) -> nn.Parameter:
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor, requires_grad=tensor.requires_grad)


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.requires_grad
