"""The numbers of a claim on some machines: as measured, and as resampled rounds make them.

The surprising choice: models that were not measured are left out of lists over many models, if
enough remain and no formula counts on their places. An average over 18 of the paper's 19 models
says what it says, with a note; an average that waits for the nineteenth says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ftax.paper.claims.gpu import Gpu, Sampler, is_latency
from ftax.paper.claims.helpers import Missing, list_some
from ftax.paper.claims.today import DRIFT, ClaimPlan, Wanted
from ftax.paper.claims.translation import UNKNOWN

# Which machine stands for a GPU of the paper; why none does.
Choose = Callable[[str], Gpu | Missing]

_FEWEST_MODELS = 3
_LEAST_SHARE = 0.5
_FEWEST_ROUNDS = 2
_MOST_NAMES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Operands of a claim.

    Attributes:
        point: by name, as measured.
        resamples: the same of each resample; empty if a cell has too few rounds for that.
        notes: what was left out, and what has no interval.
    """

    point: Mapping[str, Any]
    resamples: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


def collect_numbers(plan: ClaimPlan, choose: Choose, sampler: Sampler) -> Numbers:
    """Everything that the formulas of ``plan`` look at."""
    dropped = _find_dropped(plan, choose)
    points: dict[str, list[Any]] = {}
    columns: dict[str, list[Any]] = {}
    short: set[str] = set()
    for name, operand in plan.operands.items():
        left_out = dropped.get(operand.models, frozenset())
        items = [
            item
            for index, item in enumerate(operand.items)
            if not (operand.models and operand.models[index] in left_out)
        ]
        points[name] = [read_point(item, choose) for item in items]
        columns[name] = [
            _read_draws(item, value, choose, sampler, short)
            for item, value in zip(items, points[name], strict=True)
        ]
    notes = [_describe_dropped(models, left_out) for models, left_out in dropped.items()]
    if short:
        notes.append(f"no interval: {_list(sorted(short))} has one round")
    gpu = choose(UNKNOWN)
    drift = gpu.drift.within if isinstance(gpu, Gpu) and gpu.drift is not None else 0.0

    def make_scope(columns: Mapping[str, list[Any]]) -> dict[str, Any]:
        many = {name: plan.operands[name].many for name in columns}
        scope = {name: values if many[name] else values[0] for name, values in columns.items()}
        return {DRIFT: drift, **scope}

    return Numbers(
        point=make_scope(points),
        resamples=tuple(
            make_scope({name: [draws[i] for draws in items] for name, items in columns.items()})
            for i in range(0 if short else sampler.resamples)
        ),
        notes=tuple(notes),
    )


def read_point(wanted: Wanted, choose: Choose) -> float | Missing:
    """A number as measured, in the paper's units; a `Missing` with the reason."""
    if wanted.constant is not None:
        return wanted.constant
    gpu = choose(wanted.device)
    if isinstance(gpu, Missing):
        return gpu
    if not is_latency(wanted):
        return gpu.read(wanted)
    cell = gpu.find(wanted)
    return cell if isinstance(cell, Missing) else cell.latency_ns / 1e6


def _read_draws(
    wanted: Wanted, point: float | Missing, choose: Choose, sampler: Sampler, short: set[str]
) -> list[Any]:
    """One number a resample. Cells with too few rounds are added to ``short``."""
    gpu = choose(wanted.device)
    if not isinstance(point, Missing) and is_latency(wanted) and isinstance(gpu, Gpu):
        cell = gpu.find(wanted)
        if not isinstance(cell, Missing):
            if len(cell.values_ns) < _FEWEST_ROUNDS:
                short.add(cell.cell.label())
            return list(sampler.draw(cell, gpu.drift).tolist())
    return [point] * sampler.resamples


def _find_dropped(plan: ClaimPlan, choose: Choose) -> dict[tuple[str, ...], frozenset[str]]:
    """By list of models, those without a number in any operand over the list."""
    found: dict[tuple[str, ...], set[str]] = {}
    for operand in plan.operands.values():
        for model, item in zip(operand.models, operand.items):
            if isinstance(read_point(item, choose), Missing):
                found.setdefault(operand.models, set()).add(model)
    return {
        models: frozenset(left_out)
        for models, left_out in found.items()
        if len(models) - len(left_out) >= max(_FEWEST_MODELS, _LEAST_SHARE * len(models))
    }


def _describe_dropped(models: tuple[str, ...], left_out: frozenset[str]) -> str:
    names = _list([model for model in models if model in left_out])
    return f"over {len(models) - len(left_out)} of the paper's {len(models)} models: no {names}"


def _list(names: list[str]) -> str:
    return list_some(names, _MOST_NAMES, between=", ", more=" and {} more")
