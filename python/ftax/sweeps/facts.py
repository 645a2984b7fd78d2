"""What a worker answers for a cell, as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ftax.errors import UnavailableError, UnsupportedError, describe_fault, release
from ftax.records.record import JsonScalar
from ftax.steps.loaded import LoadedModel
from ftax.sweeps.job import Group
from ftax.timing.checks import Checks
from ftax.timing.measurement import Measurement, describe_slow_calls
from ftax.timing.session import UNSTEADY

_APART = (
    "timed apart from the other runtimes of this size, because a worker died when all were timed "
    "together"
)


def make_fields(
    loaded: LoadedModel, found: Measurement, group: Group, work: Mapping[str, int], problem: str
) -> dict[str, Any]:
    """The fields of a measured cell; see `ftax.sweeps.record.SweepCell`."""
    outputs = Checks.of(found.checks).judge_outputs()
    facts = {
        **keep_scalars(found.cell.options),
        **keep_scalars(found.preparation),
        "outputs_equal": outputs.equal,
        "outputs": outputs.words,
        "warmup_steady": UNSTEADY not in found.warnings,
        "stop_reason": found.stop_reason,
        "session": found.process.session,  # whose cells shared their rounds
        "disturbed_rounds": len(found.disturbed_rounds),
        "core_hz": found.core_hz,  # of the host
        "queued_ratio": found.queued_ratio,
    }
    # A sweep stays too short with each cell for most to be steady by its rules: a fact, no warning.
    warnings = [text for text in (*loaded.warnings, *found.warnings) if text != UNSTEADY]
    warnings += describe_slow_calls([found])
    warnings += [_APART] if group.apart else []
    if problem:
        warnings.append(problem)
    return {
        "values_ns": list(found.values_ns),
        "parameter_count": loaded.parameter_count,
        "inputs": [item.to_dict() for item in found.inputs],
        **work,
        "facts": facts,
        "warnings": list(dict.fromkeys(warnings)),
    }


def keep_scalars(values: Mapping[str, object]) -> dict[str, JsonScalar]:
    """What a record can hold under `facts`: no lists, no dicts, no infinities."""
    return {
        name: value
        for name, value in values.items()
        if value is None
        or isinstance(value, str | int)
        or (isinstance(value, float) and math.isfinite(value))
    }


def count(loaded: LoadedModel) -> tuple[dict[str, int], str]:
    """Work of one inference by the record's names, and why there is none; never raises: what cannot
    be counted is no reason not to time it."""
    from ftax.steps.work import count_work  # not cheap to import

    try:
        work = asdict(count_work(loaded))
    except Exception as error:
        release(error)
        return {}, f"work was not counted: {describe_fault(error)}"
    return work, ""


def choose_status(error: BaseException | str) -> str:
    """ "unavailable" for what cannot be had here or not of this model, however often one tries. A
    disk that refused to be written may do so another time."""
    final = isinstance(error, UnavailableError | UnsupportedError) and not isinstance(
        error.__cause__, OSError
    )
    return "unavailable" if final else "failed"
