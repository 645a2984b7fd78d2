"""Whether autograd could go on from what a call returns, which a replay could not give.

A graph that a backward pass has gone through and did not retain counts as none, since it is used
up; so the roots of backward passes are noted while the call runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

_ENGINE = "_engine_run_backward"


@contextmanager
def _keep_roots() -> Iterator[list[Any]]:
    """Of the backward passes that Python starts inside: the nodes of autograd where they begin."""
    autograd: Any = torch.autograd
    engine = getattr(autograd, _ENGINE)
    found: list[Any] = []

    def run(roots: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        keeps_graph = args[1] if len(args) > 1 else kwargs.get("keep_graph", False)
        if not keeps_graph:
            found.extend(root.grad_fn for root in roots if root.grad_fn is not None)
        return engine(roots, *args, **kwargs)

    places = [autograd, autograd.graph]
    places = [place for place in places if getattr(place, _ENGINE, None) is engine]
    for place in places:
        setattr(place, _ENGINE, run)
    try:
        yield found
    finally:
        for place in places:
            setattr(place, _ENGINE, engine)


def leaves_graph(run: Callable[[], Sequence[torch.Tensor]]) -> bool:
    """Whether autograd could go on from any of the tensors that ``run`` gives."""
    with _keep_roots() as begun:
        nodes = [item.grad_fn for item in run()]  # None: of a weight itself
    used = _follow(begun)
    return any(node not in used if node else not begun for node in nodes)


def _follow(roots: Sequence[Any]) -> set[Any]:
    """Nodes by which backward passes from ``roots`` have gone. They are used up, as the graph of a
    loss is, and autograd cannot go on from there."""
    seen, queue = set(roots), list(roots)
    while queue:
        for further, _ in queue.pop().next_functions:
            if further is not None and further not in seen:
                seen.add(further)
                queue.append(further)
    return seen
