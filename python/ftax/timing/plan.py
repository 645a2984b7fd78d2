"""How to measure: a `Plan`, and what is told meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Literal

from ftax import _core
from ftax.errors import MOST, InvalidArgumentError, check_count, check_fields, check_number
from ftax.records.fields import Nested

Progress = Callable[[str, int, int], None]  # phase, done, total
Mode = Literal["latency", "throughput"]

_SEED_LIMIT = 2**63
_LEAST_MOST_ROUNDS, _ROUNDS_A_SECOND = 200, 10  # where no largest number is given


@check_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Nested):
    """How to measure. The defaults stop when every interval is within ``target_ratio`` of its mean.

    Attributes:
        mode: one synchronised request a sample, or requests back to back.
        warmup: so many requests before the rounds; None: until steady. Over all runners together in
            half of ``duration_s`` at most, but for one request each.
        rounds: so many rounds, all of which are made if there is time; None: as the precision asks,
            up to ``max_rounds``.
        max_rounds: None: ten for each second of ``duration_s``, and no less than 200.
        duration_s: time limit of warm-up and rounds together, in seconds. After it nothing begins,
            no request of the warm-up and no round, but for the first round; what is under way ends.
            Preparation and checks come before, and what looks closer comes after.
        round_ms: aimed length of one runner's part of a round, in milliseconds.
        target_ratio: half-width of each interval over its mean at which measuring stops.
        seed: of the order of runners in the rounds and of the resampling.
        cpus: pin the measuring thread to this set of CPUs.
        patience_s: before rounds, altogether at most so long, wait for a neighbour on the same
            core to leave; beyond ``duration_s``.
        quiet_probe_ns: the host's wide probe on a core of its own, where an earlier process has
            seen it; 0: the fastest that these rounds see.
        process_index, session: which of several processes of one session this is.
    """

    mode: Mode = "latency"
    warmup: int | None = None
    rounds: int | None = None
    max_rounds: int | None = None
    duration_s: float = 30.0
    round_ms: float = 20.0
    target_ratio: float = 0.01
    seed: int = 0
    cpus: tuple[int, ...] = ()
    patience_s: float = 0.0
    quiet_probe_ns: float = 0.0
    process_index: int = 0
    session: str = ""

    def __post_init__(self) -> None:
        if self.mode not in ("latency", "throughput"):
            raise InvalidArgumentError(
                f"mode is {self.mode!r}; it has to be 'latency' or 'throughput'"
            )
        for name, least in (("warmup", 1), ("rounds", 2), ("max_rounds", 2)):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value, least=least)
        for name in ("duration_s", "round_ms", "target_ratio"):
            check_number(name, getattr(self, name))
        for name in ("patience_s", "quiet_probe_ns"):
            check_number(name, getattr(self, name), can_be_0=True)
        check_count("seed", self.seed, least=0, most=_SEED_LIMIT - 1)
        object.__setattr__(self, "cpus", tuple(self.cpus))  # a list, after JSON

    def to_dict(self) -> dict[str, object]:
        """JSON-able; ``Plan(**it)`` is this plan."""
        return asdict(self)

    def __repr__(self) -> str:
        """What differs from the defaults."""
        given = [(field.name, getattr(self, field.name)) for field in fields(self)
                 if getattr(self, field.name) != field.default]  # fmt: skip
        return f"Plan({', '.join(f'{name}={value!r}' for name, value in given)})"

    @property
    def most_rounds(self) -> int:
        """After which measuring stops, precise or not, if no exact number is asked for."""
        if self.max_rounds is not None:
            return self.max_rounds
        return min(MOST, max(_LEAST_MOST_ROUNDS, int(_ROUNDS_A_SECOND * self.duration_s)))

    def to_core(self) -> _core.RoundPlan:
        """The plan as the C++ core takes it."""
        plan = _core.RoundPlan()
        plan.mode = _core.Mode.latency if self.mode == "latency" else _core.Mode.throughput
        plan.round_duration_ns = max(1, int(self.round_ms * 1e6))
        plan.seed = self.seed
        plan.cpus = list(self.cpus)
        plan.patience_ns = int(self.patience_s * 1e9)
        plan.quiet_wide_ns = int(self.quiet_probe_ns)
        plan.warmup.iterations = self.warmup or 0
        rule = plan.rule
        rule.target_ratio = self.target_ratio
        rule.time_limit_ns = max(1, int(self.duration_s * 1e9))
        if self.rounds is None:
            rule.max_rounds = self.most_rounds
            rule.min_rounds = min(20, self.most_rounds)
        else:
            rule.fixed = True
            rule.min_rounds = rule.max_rounds = self.rounds
        plan.rule = rule
        return plan


def check_label(label: object) -> None:
    """Raises InvalidArgumentError if it is no text."""
    if not isinstance(label, str):
        raise InvalidArgumentError(f"label is {label!r}; give a text")


def choose_plan(given: Plan | None) -> Plan:
    """The plan that was given, or the default one. Raises InvalidArgumentError for what is none,
    and for CPUs that this process may not use: before anything is built."""
    if given is None:
        return Plan()
    if not isinstance(given, Plan):
        raise InvalidArgumentError(f"plan is {given!r}; give one: ftax.Plan(duration_s=3)")
    allowed = os.sched_getaffinity(0)
    if missing := [cpu for cpu in given.cpus if cpu not in allowed]:
        known = ",".join(map(str, sorted(allowed)))
        raise InvalidArgumentError(f"cannot pin to CPU {missing[0]}: this process may use {known}")
    return given
