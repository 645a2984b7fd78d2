"""Whether modules that are captured inside a training loop train as they do without: bit for bit.

Each model of the zoo runs in a loop as people write it: a loss outside of the module, gradients of
two batches added up, GradScaler, clipping, AdamW. The loop runs with the module and with its
capture, from the same weights and random numbers; all losses, gradients, weights and buffers are
compared. Then forward and backward are timed by turns.
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


def time_pass(call: Callable[..., Any], loaded: LoadedModel) -> float:
    """Forward and backward, in microseconds."""
    torch.manual_seed(7)
    start = time.perf_counter()
    compute_loss(call(*loaded.args, **loaded.kwargs)).backward()
    if loaded.device != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


def take(model: str, device: str, *, tiny: bool) -> dict[str, Any]:
    """How a model trains with its capture, or why it is refused."""
    loaded = ftax.load_model(model, tiny=tiny, device=device, batch=2)
    eager = loaded.module
    for weight in eager.parameters():
        weight.requires_grad_(weight.is_floating_point())
    eager.train()
    module = copy.deepcopy(eager)
    try:
        fast = ftax.capture(module, (loaded.args, dict(loaded.kwargs)))
    except UnsupportedError as error:
        return {"refused": str(error)}
    outcomes = [train(eager, eager, loaded, _STEPS), train(module, fast, loaded, _STEPS)]
    same = [same_bytes(one, other) for one, other in zip(*outcomes, strict=True)]
    stats = fast.stats()
    times: dict[str, list[float]] = {"eager": [], "capture": []}
    for _ in range(_TURNS):
        times["eager"].append(time_pass(eager, loaded))
        times["capture"].append(time_pass(fast, loaded))
    return {
        "compared": len(same), "other": same.count(False),
        "replayed": stats.replayed, "originals": dict(stats.original),
        "times_us": {name: statistics.median(values) for name, values in times.items()},
    }  # fmt: skip


def list_figures(parts: dict[str, dict[str, Any]]) -> list[Any]:
    """How many are taken, and whether all of them have eager's bits."""
    taken = [part for part in parts.values() if "refused" not in part]
    ratios = [p["times_us"]["eager"] / p["times_us"]["capture"] for p in taken]
    return [
        figure("models that are taken", len(taken)),
        figure("models that are refused", len(parts) - len(taken)),
        figure("models with other bits than eager's", sum(p["other"] > 0 for p in taken),
               at_most=0),
        figure("steps that were replays, least", min(p["replayed"] for p in taken), "of 100"),
        figure("eager over capture, median model", statistics.median(ratios)),
        figure("eager over capture, worst model", min(ratios)),
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
