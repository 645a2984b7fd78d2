"""Sweeps: the product of models, runtimes, hosts and sizes, measured so that no cell is lost."""

from ftax.results import register_kind
from ftax.sweep.record import SweepCell, SweepExport, SweepMachine, SweepRun, SweepTimes
from ftax.sweep.results import SweepResults

__all__ = [
    "SweepCell",
    "SweepExport",
    "SweepMachine",
    "SweepResults",
    "SweepRun",
    "SweepTimes",
]

register_kind(SweepCell.kind, SweepCell.from_dict)
register_kind(SweepMachine.kind, SweepMachine.from_dict)
register_kind(SweepRun.kind, SweepRun.from_dict)
register_kind(SweepExport.kind, SweepExport.from_dict)
register_kind(SweepTimes.kind, SweepTimes.from_dict)
