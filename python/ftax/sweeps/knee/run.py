"""`ftax.knee`: the size at which a runtime's latency leaves the plateau of its smallest size.

The surprising choice: what ends a search early (Ctrl-C, the time limit, a size for which memory is
too small) ends it with an answer, which says how far it came.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

from torch import nn

from ftax.errors import InvalidArgumentError, check_count, check_number
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import Model, load, measuring
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting, SettingOptions, read_setting
from ftax.sweeps.knee.probe import Prober
from ftax.sweeps.knee.record import Knee, KneePoint, Over
from ftax.sweeps.knee.search import choose_size
from ftax.timing.candidate import Host
from ftax.timing.interrupts import hold, interruptible, take
from ftax.timing.session import Plan, choose_plan, make_cell
from ftax.timing.watched import ProgressChoice, tell_interrupted, watched

KNEE_PLAN = Plan(max_rounds=80, duration_s=120.0)
_HIGH = {"batch": 1024, "sequence": 4096}


def knee(
    model: Model,
    inputs: Callable[[int], Any] | None = None,
    *,
    runtime: str = "eager",
    host: Host = "python",
    over: Over = "batch",
    low: int = 1,
    high: int | None = None,
    margin: float = 0.1,
    resolution: float = 0.1,
    confidence: float = 0.99,
    plan: Plan | None = None,
    progress: ProgressChoice = None,
    **options: Unpack[SettingOptions],
) -> Knee:
    """Find the largest size whose latency is within ``margin`` of the smallest size's.

    Args:
        model: a zoo name, a Hugging Face folder, what `ftax.load_model` returned, or an
            ``nn.Module``.
        inputs: for a module: a function from a size to the inputs of that size.
        over: "batch" or "sequence".
        low: the size that is the plateau.
        high: the largest size to try; None: 1024 requests, or as many tokens as the model takes.
        resolution: stop when the ends are within the ratio 1 + resolution, or neighbours.
        confidence: of the interval by which a size counts as on or off the plateau.
        plan: as for `ftax.py_bench`, but ``max_rounds`` and ``rounds`` are of one size,
            ``duration_s`` is the time limit of the search, ``patience_s`` is for all of it, and
            ``target_ratio`` is not used.

    The other arguments are those of `ftax.py_bench`. See docs/knee.md.

    Returns:
        The knee with every probed size; interrupted or out of time, with those that were done.

    Raises:
        InvalidArgumentError, UnsupportedError, UnavailableError: as the message says.
        RunnerError: the smallest size could not be run.
    """
    setting = read_setting(options, knee.__kwdefaults__)
    check_search(low, high, margin=margin, resolution=resolution, confidence=confidence)
    spec = find_runtime(runtime)
    spec.check_options(setting.runtime_options)
    with hold():
        with measuring(model, setting), watched(progress, model) as tell:
            load_size, limit = interruptible(choose_loader, model, inputs, over, setting)
            high = choose_high(over, low, high, limit)
            start = time.perf_counter()
            loaded = interruptible(load_size, low)
            prober = interruptible(
                Prober,
                load=load_size,
                prepare=lambda item: spec.prepare(Workspace(item), check_host(host)),
                over=over,
                low=low,
                loaded=loaded,
                plan=KNEE_PLAN if plan is None else choose_plan(plan),
                is_clear=lambda point: point.judge(margin, confidence) != "unsure",
                progress=tell,
            )
            points, stop_reason = _search(prober, high, resolution, margin, confidence)
            issue_ns, device_ns = prober.plateau_gate
            found = Knee(
                cell=make_cell(loaded, prober.plateau),
                over=over,
                low=low,
                high=high,
                margin=margin,
                resolution=resolution,
                confidence=confidence,
                points=tuple(points),
                issue_ns=issue_ns,
                device_ns=device_ns,
                stop_reason=stop_reason,  # type: ignore[arg-type]  # checked by the record
                environment=collect_environment(device=loaded.device),
                seconds=time.perf_counter() - start,
                checks=prober.plateau.checks.to_dict(),
                preparation=prober.plateau.preparation.to_dict(),
                warnings=prober.collect_warnings(),
            )
        if take():  # too late to cost anything
            found = replace(found, stop_reason="interrupted")
        tell_interrupted(progress, found.stop_reason, f"{len(points)} sizes")
        return found


def check_search(
    low: int, high: int | None, *, margin: float, resolution: float, confidence: float = 0.99
) -> None:
    """Raises InvalidArgumentError for what no search has, before a model is built for it."""
    check_count("low", low)
    if high is not None:
        check_count("high", high)
    check_number("margin", margin)
    check_number("resolution", resolution)
    check_number("confidence", confidence, most=1)


def choose_loader(
    model: Model, inputs: Callable[[int], Any] | None, over: str, setting: Setting
) -> tuple[Callable[[int], LoadedModel], int | None]:
    """What loads the model at a size, building it once, and the largest size if that is known."""
    if over not in ("batch", "sequence"):
        raise InvalidArgumentError(f"over is {over!r}; it has to be 'batch' or 'sequence'")
    if (given := getattr(setting, over)) is not None:
        raise InvalidArgumentError(
            f"{over} is {given}, but the knee is looked for over {over}: leave it out, or give low"
        )
    if isinstance(model, nn.Module):
        if not callable(inputs):
            raise InvalidArgumentError(
                f"inputs is of type {type(inputs).__name__}; a module needs a function from a size "
                "to inputs, such as lambda size: torch.randn(size, 512)"
            )
        return (
            lambda size: load_model(
                model, inputs=inputs(size), setting=replace(setting, **{over: size})
            ),
            None,
        )
    if inputs is not None:
        raise InvalidArgumentError("inputs is given, but a model by name or folder makes its own")
    loaded = load(model, None, None, setting)
    limit = loaded.max_sequence if over == "sequence" else None
    return lambda size: loaded.with_size(**{over: size}), limit


def choose_high(over: str, low: int, high: int | None, limit: int | None) -> int:
    """The largest size to try. Raises InvalidArgumentError for one that cannot be."""
    if high is None:
        high = limit or _HIGH[over]
    if not low < high:
        raise InvalidArgumentError(f"low is {low} and high is {high}; give a low that is smaller")
    if limit is not None and high > limit:
        raise InvalidArgumentError(f"high is {high}, but the model takes at most {limit} tokens")
    return high


def _search(
    prober: Prober, high: int, resolution: float, margin: float, confidence: float
) -> tuple[list[KneePoint], str]:
    points: list[KneePoint] = []
    try:
        while True:
            answers = {point.size: point.judge(margin, confidence) for point in points}
            size = choose_size(prober.low, high, resolution, answers)
            if size is None:
                return points, "done"
            if prober.left_s <= 0:
                return points, "time-limit"
            point = prober.probe(size)
            points += [] if point is None else [point]
            if prober.stopped:
                return points, prober.stopped
            if take():
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not points:
            raise
        return points, "interrupted"
