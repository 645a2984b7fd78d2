"""Tells machines apart: by hardware, software and switches, not by the hour of the measurement.

Numbers of one machine can be compared: another torch, or another number of threads, is another
machine to a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from string import ascii_uppercase

from ftax.errors import say_count
from ftax.machines.differences import describe_source
from ftax.machines.environment import Environment
from ftax.reports.table import Rows
from ftax.sweeps.side_by_side import name_device

# What passes, or what does not change a measurement by itself.
_PASSING_GPU = ("sm_clock_mhz", "memory_clock_mhz", "power_mw", "temperature_c", "throttle_reasons")
_PASSING_SETTINGS = ("variables", "grad_enabled", "inference_mode", "default_dtype")
_NOTHING = "-"
_Key = frozenset[tuple[str, str]]  # of a machine: its facts
_TOLD = 2  # facts that tell machines of one title apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine of a report.

    Attributes:
        name: "A", "B", ... in the order of the records.
        facts: by dotted name, as text.
    """

    name: str
    title: str
    facts: Mapping[str, str]
    environment: Environment

    @property
    def short(self) -> str:
        """Its GPU, or its CPU where it measured on that, with the name that the user gave it."""
        return ", ".join(filter(None, [name_device(self.environment), self.environment.machine]))

    @property
    def label(self) -> str:
        """``'Machine A: NVIDIA H200, ...'``."""
        return f"Machine {self.name}: {self.title}"


class Machines:
    """The machines of a report; an environment's machine by its facts."""

    def __init__(self, environments: Iterable[Environment]) -> None:
        self._by_key: dict[_Key, Machine] = {}
        self._commits: dict[_Key, dict[str, None]] = {}
        for environment in environments:
            facts = list_facts(environment)
            key = frozenset(facts.items())
            if key not in self._by_key:
                name = _name(len(self._by_key))
                self._by_key[key] = Machine(
                    name=name, title=_describe(environment), facts=facts, environment=environment
                )
            commits = self._commits.setdefault(key, {})
            commits[f"ftax {describe_source(environment)}"] = None
        self._by_key = _tell_apart(self._by_key)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, environment: Environment) -> Machine:
        """The machine of an environment that was given."""
        return self._by_key[frozenset(list_facts(environment).items())]

    def make_table(self) -> Rows:
        """A row a fact, a column a machine; the first column tells where machines differ."""
        machines = list(self._by_key.values())
        rows = []
        for name in dict.fromkeys(name for machine in machines for name in machine.facts):
            values = [machine.facts.get(name, _NOTHING) for machine in machines]
            rows.append((name, *values, "differs" if len(set(values)) > 1 else ""))
        sources = ["; ".join(commits) for commits in self._commits.values()]
        rows.append(("measured by", *sources, ""))
        columns = ("fact", *(f"machine {machine.name}" for machine in machines), "compared")
        last = None if len(machines) > 1 else -1  # one is compared with nothing
        return Rows(
            title="What each machine is: hardware, software, switches",
            columns=columns[:last],
            rows=tuple(row[:last] for row in rows),
        )


def list_facts(environment: Environment) -> dict[str, str]:
    """What has to be equal for two records to be of one machine."""
    data = environment.to_dict()
    facts = {"machine": environment.machine} if environment.machine else {}
    for part, passing in (("gpu", _PASSING_GPU), ("host", ()), ("software", ()),
                          ("settings", _PASSING_SETTINGS)):  # fmt: skip
        fields = data[part]
        if isinstance(fields, Mapping):
            facts |= {
                f"{part}.{name}": _format(value)
                for name, value in fields.items()
                if name not in passing
            }
    return facts


def _tell_apart(machines: Mapping[_Key, Machine]) -> dict[_Key, Machine]:
    """The machines, with a fact or two in the titles of those that would read the same."""
    told = {}
    for key, machine in machines.items():
        alike = [other for other in machines.values() if other.title == machine.title]
        differing = [
            f"{name} {value}"
            for name, value in machine.facts.items()
            if any(other.facts.get(name) != value for other in alike)
        ]
        if differing:
            machine = replace(machine, title=f"{machine.title}, {', '.join(differing[:_TOLD])}")
        told[key] = machine
    return told


def _describe(environment: Environment) -> str:
    host = environment.host
    cpu = f"{host.cpu_model or host.architecture}, {host.usable_cpus} CPUs"
    threads = say_count(environment.settings.num_threads, "thread")
    parts = [cpu, threads, f"torch {environment.software.torch}"]
    if environment.machine:
        parts.insert(0, environment.machine)
    if environment.gpu is not None:
        parts.insert(0, environment.gpu.name)
    return ", ".join(parts)


def _name(number: int) -> str:
    letter = ascii_uppercase[number % len(ascii_uppercase)]
    return letter if number < len(ascii_uppercase) else f"{letter}{number // len(ascii_uppercase)}"


def _format(value: object) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or _NOTHING
    return str(value)
