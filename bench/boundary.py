"""Whether modules that are captured inside a training loop train as they do without: bit for bit.

Each model of the zoo runs in a loop as people write it: a loss outside of the module, gradients of
two batches added up, GradScaler, clipping, AdamW. The loop runs with the module and with its
capture, from the same weights and random numbers; all losses, gradients, weights and buffers are
compared, also of two loops without a capture. Then forward and backward are timed by turns; on a
GPU beside those of `torch.cuda.make_graphed_callables`, and of two CUDA graphs made by hand.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import ftax
from ftax.errors import FtaxError, UnsupportedError
from ftax.steps.loaded import LoadedModel
from ftax.tape.equality import same_bytes
from record import add_part_options, figure, make_parser, run_parts

_STEPS, _ADDED_UP = 100, 2
_TURNS = 15


def compute_loss(result: Any) -> torch.Tensor:
    """Of all that has a graph."""
    leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    losses = [leaf.float().square().mean() for leaf in leaves if leaf.requires_grad]
    return torch.stack(losses).sum()


def train(
    module: nn.Module, call: Callable[..., Any], loaded: LoadedModel, steps: int
) -> list[torch.Tensor]:
    """All that the loop leaves."""
    weights = [item for item in module.parameters() if item.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    scaler = torch.amp.GradScaler(torch.device(loaded.device).type)  # type: ignore[attr-defined]
    torch.manual_seed(7)
    found = []
    for step in range(steps):
        loss = compute_loss(call(*loaded.args, **loaded.kwargs))
        scaler.scale(loss / _ADDED_UP).backward()
        found.append(loss.detach().clone())
        if step % _ADDED_UP == _ADDED_UP - 1:
            scaler.unscale_(optimizer)
            found.append(nn.utils.clip_grad_norm_(weights, 1.0))
            if step == steps - 1:
                found += [torch.zeros(0) if w.grad is None else w.grad.clone() for w in weights]
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return [*found, *module.parameters(), *module.buffers()]


def time_pass(run: Callable[[], object]) -> float:
    """Forward and backward, in microseconds."""
    torch.manual_seed(7)
    start = time.perf_counter()
    run()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


class _OfTensors(nn.Module):
    """The same module, called with the tensors of its arguments alone."""

    def __init__(self, module: nn.Module, loaded: LoadedModel) -> None:
        super().__init__()
        self.module = module
        self.leaves, self.tree = pytree.tree_flatten((loaded.args, dict(loaded.kwargs)))
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return self.module(*args, **kwargs)


def make_graphed(module: nn.Module, loaded: LoadedModel) -> Callable[..., Any]:
    """By torch. Raises RuntimeError where it cannot."""
    plain = _OfTensors(module, loaded)
    graphed = torch.cuda.make_graphed_callables(
        plain, tuple(plain.tensors), allow_unused_input=True
    )
    return lambda *args, **kwargs: graphed(*plain.tensors)


def make_by_hand(module: nn.Module, loaded: LoadedModel) -> Callable[[], object]:
    """A forward and a backward pass that leave all results and gradients where they lie."""
    weights = [item for item in module.parameters() if item.requires_grad]
    plain = _OfTensors(module, loaded)

    def list_results() -> list[torch.Tensor]:
        leaves = pytree.tree_leaves(plain(*plain.tensors))
        return [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # which has to make the copy of the module first
    with torch.cuda.stream(side):
        for _ in range(3):
            compute_loss(list_results()).backward()
            module.zero_grad()
    torch.cuda.synchronize()
    forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(forward):
        results = list_results()
    handed = [item.detach().requires_grad_() for item in results]
    grads = [torch.zeros_like(item) for item in handed]
    with torch.cuda.graph(backward, pool=forward.pool()):
        found = torch.autograd.grad(results, weights, grads, allow_unused=True)

    def run() -> object:
        forward.replay()
        made = torch.autograd.grad(compute_loss(handed), handed)
        torch._foreach_copy_(grads, made)
        backward.replay()
        return results, found, module  # whose weights the graphs read

    return run


def take_beside(module: nn.Module, loaded: LoadedModel) -> dict[str, Any]:
    """How long others take, and what eager's passes take of memory."""
    for weight in module.parameters():
        weight.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    compute_loss(module(*loaded.args, **loaded.kwargs)).backward()
    found: dict[str, Any] = {"eager_bytes": torch.cuda.max_memory_allocated() - before}
    try:
        found["by_hand"] = make_by_hand(copy.deepcopy(module), loaded)
        graphed = make_graphed(copy.deepcopy(module), loaded)
        found["graphed"] = lambda: compute_loss(graphed()).backward()
    except (RuntimeError, TypeError, ValueError) as error:
        found["beside_failed"] = f"{type(error).__name__}: {error}"[:300]
    return found


def take(model: str, device: str, *, tiny: bool) -> dict[str, Any]:
    """How a model trains with its capture, or why it is refused."""
    loaded = ftax.load_model(model, tiny=tiny, device=device, batch=2)
    eager = copy.deepcopy(loaded.module)
    for weight in eager.parameters():
        weight.requires_grad_(weight.is_floating_point())
    eager.train()
    module = copy.deepcopy(eager)
    for part in (*eager.modules(), *module.modules()):
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()  # copies are not
    try:
        fast = ftax.capture(module, (loaded.args, dict(loaded.kwargs)))
    except UnsupportedError as error:
        return {"refused": str(error)}
    again = copy.deepcopy(eager)
    for part in again.modules():
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()
    wanted = train(eager, eager, loaded, _STEPS)
    same = list_same(wanted, train(module, fast, loaded, _STEPS))
    # Convolutions and recurrent layers of cuDNN may add up in any order.
    repeated = list_same(wanted, train(again, again, loaded, _STEPS))
    stats = fast.stats()

    def run(call: Callable[..., Any]) -> Callable[[], object]:
        return lambda: compute_loss(call(*loaded.args, **loaded.kwargs)).backward()

    beside = take_beside(eager, loaded) if torch.device(device).type == "cuda" else {}
    others = {name: beside.pop(name) for name in ("graphed", "by_hand") if name in beside}
    ways = {"eager": run(eager), "capture": run(fast), **others}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_TURNS):
        for name, way in ways.items():
            times[name].append(time_pass(way))
    return {
        "kind": fast.explain().programs[0].kind if fast.explain().programs else "", **beside,
        "memory_bytes": stats.memory_bytes, "warnings": list_warnings(fast),
        "compared": len(same), "other": same.count(False), "other_in_eager": repeated.count(False),
        "replayed": stats.replayed, "originals": dict(stats.original),
        "times_us": {name: statistics.median(values) for name, values in times.items()},
    }  # fmt: skip


def list_same(outcome: list[torch.Tensor], other: list[torch.Tensor]) -> list[bool]:
    """Of each value of a loop, whether another loop has its bits."""
    return [same_bytes(one, two) for one, two in zip(outcome, other, strict=True)]


def list_warnings(fast: ftax.Captured) -> list[str]:
    """Of its recordings."""
    return [warning for program in fast.explain().programs for warning in program.warnings]


def list_beside(parts: list[dict[str, Any]]) -> list[Any]:
    """On a GPU: how its passes compare with those of others, in time and memory."""
    figures = []
    for name, words, most in (
        ("graphed", "capture over make_graphed_callables", 1.05),
        ("by_hand", "capture over two graphs made by hand", 1.1),
    ):
        times = [part["times_us"] for part in parts if name in part["times_us"]]
        if ratios := [item["capture"] / item[name] for item in times]:
            figures += [
                figure(f"{words}, median model", statistics.median(ratios), at_most=most),
                figure(f"{words}, worst model", max(ratios), at_most=most),
            ]
    if memory := [p["memory_bytes"] / p["eager_bytes"] for p in parts if p.get("eager_bytes")]:
        words = "memory of both graphs over what eager's passes take"
        figures.append(figure(f"{words}, median model", statistics.median(memory), at_most=1.1))
    return figures


def list_figures(parts: dict[str, dict[str, Any]]) -> list[Any]:
    """How many are taken, and whether all of them have eager's bits."""
    taken = [part for part in parts.values() if "refused" not in part]
    ratios = [p["times_us"]["eager"] / p["times_us"]["capture"] for p in taken]
    return [
        figure("models that are taken", len(taken)),
        figure("models that are refused", len(parts) - len(taken)),
        figure("models with other bits than eager's, where eager repeats its own",
               sum(p["other"] > 0 and not p.get("other_in_eager") for p in taken), at_most=0),
        figure("models whose bits eager does not repeat",
               sum(p.get("other_in_eager", 0) > 0 for p in taken)),
        figure("steps that were replays, least", min(p["replayed"] for p in taken), "of 100"),
        figure("eager over capture, median model", statistics.median(ratios)),
        figure("eager over capture, worst model", min(ratios)),
        *list_beside(taken),
    ]  # fmt: skip


def main() -> None:
    """Run, print, save."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=0.0)
    options = parser.parse_args()

    def take_or_leave(model: str) -> dict[str, Any]:
        try:
            return take(model, options.device, tiny=options.tiny)
        except (FtaxError, ValueError) as error:  # it cannot be loaded here, or not trained
            raise RuntimeError(str(error)) from error

    wanted = {
        spec.name: (lambda model=spec.name: take_or_leave(model)) for spec in ftax.list_models()
    }
    run_parts(__file__, wanted, options, list_figures)


if __name__ == "__main__":
    main()
