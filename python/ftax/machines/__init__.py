"""Reads everything about a machine and a process that can change what is measured on it.

The surprising choice is what is left out: no host name, no user name, no path and no device
serial number, so that a results file can be published as it is. A variable whose value holds a
path is recorded as set, with the value withheld.
"""

from ftax.machines.condition import Condition, collect_condition
from ftax.machines.environment import Device, Environment, collect_environment
from ftax.machines.gpu import GpuFacts
from ftax.machines.gpu_condition import GpuCondition, collect_gpu_condition
from ftax.machines.gpu_watch import (
    ClockReading,
    ConditionLog,
    GpuConditions,
    GpuWatch,
    judge_conditions,
    watch_gpu,
)
from ftax.machines.host import HostFacts
from ftax.machines.settings import Settings
from ftax.machines.software import SoftwareFacts, SourceFacts

__all__ = [
    "ClockReading",
    "Condition",
    "ConditionLog",
    "Device",
    "Environment",
    "GpuCondition",
    "GpuConditions",
    "GpuFacts",
    "GpuWatch",
    "HostFacts",
    "Settings",
    "SoftwareFacts",
    "SourceFacts",
    "collect_condition",
    "collect_environment",
    "collect_gpu_condition",
    "judge_conditions",
    "watch_gpu",
]
