"""The work of one inference, in the fields of a sweep's record."""

from __future__ import annotations

from ftax.errors import release
from ftax.steps.loaded import LoadedModel
from ftax.sweeps.facts import describe_fault

_FIELDS = ("macs", "operators", "modules")


def count(loaded: LoadedModel) -> tuple[dict[str, int], str]:
    """Multiply-accumulates, operators and module calls, and why there are none; never raises.

    What cannot be counted is no reason not to time it.
    """
    from ftax.steps.work import count_work  # not cheap to import

    try:
        work = count_work(loaded)
    except Exception as error:
        release(error)
        return {}, f"work was not counted: {describe_fault(error)}"
    found = {name: getattr(work, name) for name in _FIELDS}
    return {name: value for name, value in found.items() if value is not None}, ""
