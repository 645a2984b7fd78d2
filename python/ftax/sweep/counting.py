"""The work of one inference, in the fields of a sweep's record."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from ftax.faults import release
from ftax.models import LoadedModel
from ftax.sweep.facts import describe_fault

_MODULE = "ftax.models.work"
_FIELDS = ("macs", "operators", "modules")


def count(loaded: LoadedModel) -> tuple[dict[str, int], str]:
    """Multiply-accumulates, operators and module calls, and why there are none; never raises.

    What cannot be counted is no reason not to time it.
    """
    if find_spec(_MODULE) is None:
        return {}, ""
    try:
        work = import_module(_MODULE).count_work(loaded)
    except Exception as error:
        release(error)
        return {}, f"work was not counted: {describe_fault(error)}"
    found = {name: getattr(work, name) for name in _FIELDS}
    return {name: value for name, value in found.items() if value is not None}, ""
