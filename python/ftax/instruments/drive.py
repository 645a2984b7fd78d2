"""Keeps the GPU busy with one runner for some seconds, by the loop that also takes latencies.

The loop is told how long to go on rather than how often to call: a counter needs seconds, whatever
an inference takes. Readings are taken inside the run, never around it, because what surrounds it (a
garbage collection, a warm-up) leaves the GPU idle for longer than one would think.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ftax import _core
from ftax.errors import RunnerError, describe
from ftax.timing.plan import Plan
from ftax.timing.session import quiet

# Short enough that a reading between rounds places a counter's step well, long enough that what
# happens between two rounds (a probe of the host, the reading) is lost beside them.
_ROUND_MS = 15.0
_NO_END = 10**6  # rounds; the time limit ends the run
_WARMUP = 5

Reading = Callable[[int, bool], None]  # rounds done; whether the run has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """What was run, round by round: how many requests, and the time that they took together."""

    requests: tuple[int, ...]
    round_ns: tuple[int, ...]


def drive(
    runner: _core.Runner,
    *,
    seconds: float,
    lead_in_s: float,
    read: Reading,
) -> Drive:
    """Run ``runner`` for ``lead_in_s``, in which clocks and power rise, and then ``seconds`` more.

    ``read`` is called between rounds from the end of the lead-in on, and after the last round.
    There are at least three rounds, however long they take. Raises RunnerError if the runner
    fails, and what ``read`` raises.
    """
    plan = Plan(
        warmup=_WARMUP,
        rounds=_NO_END,
        duration_s=lead_in_s + seconds,
        round_ms=_ROUND_MS,
    ).to_core()
    with quiet():
        start = _core.now_ns()

        def report(phase: str, done: int, total: int) -> None:
            if phase == "round" and done > 0 and _core.now_ns() - start >= lead_in_s * 1e9:
                read(done, False)

        result = _core.measure_rounds([runner], plan, report)
        rounds = result.runners[0]
        if rounds.error:
            raise RunnerError(
                f"{runner.name} failed while the GPU was read: {describe(rounds.error)}"
            )
        if result.stop_reason == "interrupted":
            raise KeyboardInterrupt("interrupted while the GPU was read")
        read(len(rounds.values_ns), True)
    samples = rounds.samples_ns
    return Drive(
        requests=tuple(len(taken) * rounds.burst for taken in samples),
        round_ns=tuple(sum(taken) * rounds.burst for taken in samples),
    )
