"""Every way to run one model side by side: what each saves, and whether it saves tax or kernels.

Nothing here is stored: rows are computed from the measurements and traces of a receipt. The tax of
a runtime is its untraced latency minus its busy time from its own trace, and the split of a
speed-up is the difference of two such pairs. It therefore holds for runtimes whose kernels have
nothing in common, and its two parts sum to what was saved exactly.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ftax.ladders.evidence import RungEvidence
from ftax.ladders.ladder import EAGER, Ladder
from ftax.timing.candidate import Place, Preparation
from ftax.timing.checks import Checks
from ftax.timing.differences import compute_intervals, find_doubt_of
from ftax.timing.measurement import Measurement
from ftax.timing.units import format_time

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRow:
    """One runtime under one host, compared with its baseline: the first rung, or what it names.

    Attributes:
        is_rung: whether it stands on the ladder.
        is_reference: whether it is Python eager, whose outputs the others are held against.
        baseline: None where the baseline that it names was not measured.
        saved_ns: latency of the baseline minus its own; its interval resamples rounds jointly.
        speedup_interval: the same draws, linearised about the two means.
        tolerance: largest relative difference of outputs that its dtype allows.
        busy_ns: device busy time of an inference, from its own trace; None on a CPU and without a
            reliable trace.
        tax_left_ns: latency minus busy time.
        tax_removed_ns, busy_removed_ns: the split of ``saved_ns``; they sum to it.
        difference: how its kernels differ from the baseline's, in words.
        issue_ns: host time to issue one inference; None where the gate did not hold.
        calls_to_pay_back: calls after which what they save exceeds the preparation; None if no
            saving is resolved.
        examples_per_s: back to back; None unless throughput was measured, and can be gone by.
        doubt: why its latency, or its baseline's, is not to go by, and so nothing that is computed
            from it; "" if both are.
        excluded: why it is not recommended in place of the first rung, however fast; "" if it may
            be.
    """

    measurement: Measurement
    is_rung: bool
    is_reference: bool
    baseline: Measurement | None
    saved_ns: float | None
    saved_interval_ns: Ends | None
    speedup_ratio: float | None
    speedup_interval: Ends | None
    outputs_equal: bool
    outputs: str
    tolerance: float | None
    busy_ns: float | None
    tax_removed_ns: float | None
    busy_removed_ns: float | None
    kernels: int | None
    kernel_ns: float | None
    difference: str
    issue_ns: float | None
    preparation: Preparation
    examples_per_s: float | None
    excluded: str
    doubt: str = ""

    @property
    def label(self) -> str:
        """``onnxruntime/cpp``."""
        return str(self.measurement.place)

    @property
    def latency_ns(self) -> float:
        """Its latency."""
        return self.measurement.latency_ns

    @property
    def tax_left_ns(self) -> float | None:
        """Latency that no kernel, copy or fill accounts for."""
        return None if self.busy_ns is None else self.latency_ns - self.busy_ns

    @property
    def is_faster(self) -> bool:
        """Whether it is faster than its baseline for certain."""
        if self.doubt or self.saved_interval_ns is None:
            return False
        return self.saved_interval_ns[0] > 0

    @property
    def calls_to_pay_back(self) -> int | None:
        """See the class."""
        seconds = self.preparation.seconds
        if not self.is_faster or seconds is None or not self.saved_ns:
            return None
        return math.ceil(seconds * 1e9 / self.saved_ns)


# How the reason of a row begins whose calls are faster, but for some.
IN_THE_MEAN = "not faster in the mean of all calls"
# How the reason of a row begins that repeats numbers which the model reads anew in each call.
BAKED = "right only while a number that the model reads of its inputs or state is the recorded one"


def compute_rows(
    measurements: Sequence[Measurement],
    evidence: Sequence[RungEvidence] = (),
    throughputs: Sequence[Measurement] = (),
    *,
    ladder: Ladder = EAGER,
) -> tuple[RuntimeRow, ...]:
    """A row a measurement, fastest first. The first measurement is the ladder's first rung."""
    made = [Preparation.of(item.preparation) for item in measurements]
    baselines = [_find_baseline(measurements, made, place) for place in range(len(measurements))]
    contrasts = []
    for place, base in enumerate(baselines):
        plus = place if base is None else base  # without a baseline there is nothing to compare
        ratio = measurements[plus].latency_ns / measurements[place].latency_ns
        for weight in (1.0, ratio):
            weights = [0.0] * len(measurements)
            weights[plus] += 1.0
            weights[place] -= weight
            contrasts.append(weights)
    intervals = compute_intervals(measurements, contrasts)
    found = {item.place: item for item in evidence}
    rates = {
        item.place: item.cell.batch * 1e9 / item.latency_ns
        for item in throughputs
        if not item.doubt
    }
    references = {preparation.baseline for preparation in made}
    same_work = not Checks.of(measurements[0].checks).work_problem
    rows = [
        _make_row(
            item,
            made[place],
            None if base is None else measurements[base],
            intervals[2 * place : 2 * place + 2],
            found,
            rates.get(item.place),
            _exclude(item, measurements[0], made[place], references, ladder)
            if same_work
            else f"{ladder.top}'s calls are not all the same work",
            ladder,
        )
        for place, (item, base) in enumerate(zip(measurements, baselines, strict=True))
    ]
    return tuple(sorted(rows, key=lambda row: row.latency_ns))


def _make_row(
    item: Measurement,
    preparation: Preparation,
    base: Measurement | None,
    intervals: Sequence[Ends | None],
    found: Mapping[Place, RungEvidence],
    rate: float | None,
    excluded: str,
    ladder: Ladder,
) -> RuntimeRow:
    mine = found.get(item.place)
    theirs = None if base is None else found.get(base.place)
    is_top = item.place == ladder.places[0]
    traced = mine if mine is not None and mine.kernel_ns else None
    saved_ns = None if base is None else base.latency_ns - item.latency_ns
    spread = None if base is None else intervals[1]
    busy_ns, base_busy_ns = _find_busy(item, mine), _find_busy(base, theirs)
    busy_removed_ns = None
    if busy_ns is not None and base_busy_ns is not None:
        busy_removed_ns = base_busy_ns - busy_ns
    outputs = Checks.of(item.checks).judge_outputs()
    return RuntimeRow(
        measurement=item,
        is_rung=item.place in ladder.places,
        is_reference=item.place == Place("eager", "python"),
        baseline=base,
        saved_ns=saved_ns,
        saved_interval_ns=None if base is None else intervals[0],
        speedup_ratio=None if base is None else base.latency_ns / item.latency_ns,
        speedup_interval=None if spread is None or base is None else (
            max(0.0, base.latency_ns + spread[0]) / item.latency_ns,
            (base.latency_ns + spread[1]) / item.latency_ns,
        ),
        outputs_equal=outputs.equal,
        outputs=outputs.words,
        tolerance=outputs.tolerance,
        busy_ns=busy_ns,
        tax_removed_ns=(
            None if busy_removed_ns is None or saved_ns is None else saved_ns - busy_removed_ns
        ),
        busy_removed_ns=busy_removed_ns,
        kernels=traced.kernels if traced else None,
        kernel_ns=statistics.median(traced.kernel_ns) if traced else None,
        difference="" if item is base else _describe_kernels(theirs, mine),
        issue_ns=None if mine is None else mine.issue_ns,
        preparation=preparation,
        examples_per_s=rate,
        doubt=find_doubt_of([item] if base is None else [item, base]),
        excluded=excluded or ("" if outputs.equal or is_top else outputs.words),
    )  # fmt: skip


def _exclude(
    item: Measurement,
    top: Measurement,
    preparation: Preparation,
    references: set[str],
    ladder: Ladder,
) -> str:
    if preparation.baseline:
        return f"it is compared with {preparation.baseline}, not with {ladder.top}"
    if item.cell.runtime in references:
        return f"it is what others are compared with, and not compared with {ladder.top}"
    if baked := Checks.of(item.checks).baked:
        return f"{BAKED}: {baked}"
    if item.latency_ns < item.long_run_ns >= top.long_run_ns and item is not top:
        return f"{IN_THE_MEAN}, {format_time(item.long_run_ns)}"
    return ""


def _find_baseline(
    measurements: Sequence[Measurement], made: Sequence[Preparation], place: int
) -> int | None:
    """The place of what it names, under the same host if it is there; otherwise the first."""
    item, named = measurements[place], made[place].baseline
    if not named:
        names = {other.baseline for other in made}
        return place if item.cell.runtime in names else 0
    places = [i for i, other in enumerate(measurements) if other.cell.runtime == named]
    same = [i for i in places if measurements[i].cell.host == item.cell.host]
    return next(iter((*same, *places)), None)


def _find_busy(item: Measurement | None, evidence: RungEvidence | None) -> float | None:
    if item is None or evidence is None or not evidence.splits(item.latency_ns):
        return None
    return evidence.compute_busy()[0]


def _describe_kernels(theirs: RungEvidence | None, mine: RungEvidence | None) -> str:
    if theirs is None or mine is None or not theirs.kernel_ns or not mine.kernel_ns:
        return ""
    before_ns, after_ns = (statistics.median(item.kernel_ns) for item in (theirs, mine))
    if mine.same_kernels and theirs.same_kernels:
        return f"the same, {after_ns / before_ns:.2f}x as long" if before_ns else "the same"
    change = mine.kernels - theirs.kernels
    words = f"{abs(change)} {'fewer' if change < 0 else 'more'}" if change else "as many others"
    if not (mine.kernels and theirs.kernels and before_ns):
        return words
    ratio = (after_ns / mine.kernels) / (before_ns / theirs.kernels)
    return f"{words}, each {ratio:.2f}x as long on average"
