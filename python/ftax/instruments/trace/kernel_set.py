"""Which kernels ran, how often and for how long; and whether two rungs ran the same ones.

A fill or copy that the driver ran as a kernel counts as a fill or copy. CUDA graphs turn small ones
into kernels at will, and that is no other work than they were.

Durations are compared too: a replay that sets a launch attribute wrongly runs the very same kernels
a fifth slower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ftax import _core
from ftax.errors import ResultsError
from ftax.instruments.trace.activities import IterationTrace, Kernel
from ftax.instruments.trace.names import demangle, shorten_all
from ftax.instruments.trace.records import Trace


@dataclass(frozen=True, slots=True)
class KernelKey:
    """What makes two launches the same kernel."""

    name: str  # mangled
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int  # static and dynamic

    def describe(self, short_name: str) -> str:
        """Return name and launch shape for people."""
        grid, block = ("x".join(map(str, size)) for size in (self.grid, self.block))
        shared = f", {self.shared_bytes} B shared" if self.shared_bytes else ""
        return f"{short_name} [grid {grid}, block {block}{shared}]"


MemoryKey = tuple[str, int | None]  # what, as in "memcpy DtoH", and bytes; None: not known
WorkKey = KernelKey | MemoryKey
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEntry:
    """One kernel of a set."""

    key: KernelKey
    count: int  # in each iteration
    durations_ns: tuple[int, ...]  # of every run in every iteration

    @property
    def total_ns(self) -> int:
        """Sum over all iterations."""
        return sum(self.durations_ns)

    @property
    def median_ns(self) -> float:
        """Median duration of one run."""
        return _core.compute_median(self.durations_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """The kernels of each iteration of a trace: the same ones in all of them.

    Attributes:
        entries: by total duration, longest first.
        memory: copies and fills of each iteration, counted.
        sums_ns: sum of kernel durations of each iteration.
    """

    label: str
    entries: tuple[KernelEntry, ...]
    memory: Mapping[MemoryKey, int]
    sums_ns: tuple[int, ...]

    @classmethod
    def of(cls, trace: Trace) -> KernelSet:
        """Count the kernels of a trace.

        Raises:
            ResultsError: the trace is empty, or its iterations differ; `judge` lists where.
        """
        parts = trace.split()
        if not parts:
            raise ResultsError(f"the trace of {trace.label} has no iterations; trace at least one")
        kernels, work = count_kernels(parts[0].kernels), count_work(parts[0])
        for part in parts[1:]:
            if count_work(part) != work:
                raise ResultsError(
                    f"iteration {part.index} of {trace.label} ran other device work than iteration "
                    "0; trace again after more warm-up (`ftax trace` lists what differs)"
                )
        durations: dict[KernelKey, list[int]] = {}
        for part in parts:
            for kernel in _drop_memory(part.kernels):
                durations.setdefault(make_key(kernel), []).append(kernel.duration_ns)
        entries = [
            KernelEntry(key=key, count=kernels[key], durations_ns=tuple(times))
            for key, times in durations.items()
        ]
        return cls(
            label=trace.label,
            entries=tuple(sorted(entries, key=lambda entry: -entry.total_ns)),
            memory=dict(count_memory(parts[0])),
            sums_ns=tuple(
                sum(kernel.duration_ns for kernel in _drop_memory(part.kernels)) for part in parts
            ),
        )

    @property
    def sum_ns(self) -> float:
        """Kernel time of an iteration: the median over iterations."""
        return _core.compute_median(self.sums_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDifference:
    """How the device work of b differs from that of a: the counts in an iteration of each."""

    a: str
    b: str
    kernels: Mapping[KernelKey, tuple[int, int]]
    memory: Mapping[MemoryKey, tuple[int, int]]  # copies and fills

    @property
    def equal(self) -> bool:
        """Whether a and b ran the same kernels equally often; copies and fills stand beside."""
        return not self.kernels

    def describe(self, *, limit: int = 10) -> str:
        """Return the difference in words, at most `limit` lines of it."""
        short = shorten_all({key.name for key in self.kernels})
        rows = [(key.describe(short[key.name]), *pair) for key, pair in self.kernels.items()]
        rows += [(describe_memory(key), *pair) for key, pair in self.memory.items()]
        if not rows:
            return f"{self.a} and {self.b} ran the same kernels, copies and fills"
        head = f"{self.b} ran {'the same' if self.equal else 'other'} kernels"
        lines = [f"  {what}: {a} in {self.a}, {b} in {self.b}" for what, a, b in rows[:limit]]
        if len(rows) > limit:
            lines.append(f"  and {len(rows) - limit} more")
        beside = " but other copies or fills" if self.equal else ""
        return "\n".join([f"{head}{beside} than {self.a}:", *lines])


def make_key(kernel: Kernel) -> KernelKey:
    """Return the identity of a launch."""
    shared_bytes = kernel.static_shared_bytes + kernel.dynamic_shared_bytes
    return KernelKey(kernel.name, kernel.grid, kernel.block, shared_bytes)


def find_memory_kind(kernel: Kernel) -> str | None:
    """Return "memset" or "memcpy" if the driver ran one as this kernel; its own kernels have no
    namespace."""
    name = demangle(kernel.name).lower()
    if "::" in name:
        return None
    return next((kind for kind in ("memset", "memcpy") if kind in name), None)


def describe_memory(key: MemoryKey) -> str:
    """Return a copy or fill for people."""
    what, size_bytes = key
    return what if size_bytes is None else f"{what}, {size_bytes} B"


def count_kernels(kernels: Iterable[Kernel]) -> Counter[KernelKey]:
    """Count the launches of each kernel that is neither fill nor copy."""
    return Counter(map(make_key, _drop_memory(kernels)))


def count_memory(part: IterationTrace) -> Counter[MemoryKey]:
    """Count copies and fills by kind and size."""
    keys: list[MemoryKey] = []
    keys += [(f"memcpy {item.copy_kind}", item.bytes) for item in part.memcpys]
    keys += [("memset", item.bytes) for item in part.memsets]
    kinds = map(find_memory_kind, part.kernels)
    keys += [(f"{kind} as a kernel", None) for kind in kinds if kind is not None]
    return Counter(keys)


def count_work(part: IterationTrace) -> Counter[WorkKey]:
    """Count kernels, copies and fills together."""
    work: Counter[WorkKey] = Counter()
    work.update(count_kernels(part.kernels))
    work.update(count_memory(part))
    return work


def _drop_memory(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    return (kernel for kernel in kernels if find_memory_kind(kernel) is None)


def compare_kernel_sets(a: KernelSet, b: KernelSet) -> KernelDifference:
    """Return how the kernels of b differ from those of a."""
    counts_a, counts_b = ({entry.key: entry.count for entry in side.entries} for side in (a, b))
    kernels = _pair_differing(counts_a, counts_b)
    # First what a alone ran, then what b alone ran.
    ordered = sorted(kernels.items(), key=lambda item: (all(item[1]), item[1][1] > 0))
    return KernelDifference(
        a=a.label, b=b.label, kernels=dict(ordered), memory=_pair_differing(a.memory, b.memory)
    )


def compute_lacking(reference: KernelSet, kernels: KernelSet) -> float:
    """Of the reference's kernel time, the share of kernels that another set has not, or less
    often."""
    counts = {entry.key: entry.count for entry in kernels.entries}
    total_ns = sum(entry.total_ns for entry in reference.entries)
    lacking_ns = sum(
        entry.total_ns * max(0.0, 1 - counts.get(entry.key, 0) / entry.count)
        for entry in reference.entries
    )
    return lacking_ns / total_ns if total_ns else 0.0


def _pair_differing(a: Mapping[_Key, int], b: Mapping[_Key, int]) -> dict[_Key, tuple[int, int]]:
    pairs = {key: (a.get(key, 0), b.get(key, 0)) for key in dict.fromkeys((*a, *b))}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


_LIMIT_RATIO = 0.05
_LIMIT_NS = 300  # a kernel of 2 us jitters by a tenth of that from run to run


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDuration:
    """One kernel that ran in a and in b: medians of its duration, ns."""

    key: KernelKey
    count: int  # per iteration of a
    a_ns: float
    b_ns: float

    @property
    def ratio(self) -> float:
        """b over a; infinite if a took no time at all."""
        return self.b_ns / self.a_ns if self.a_ns > 0 else float("inf")

    @property
    def differs(self) -> bool:
        """Whether by more than 5 % of a and by more than 0.3 us."""
        return abs(self.b_ns - self.a_ns) > max(_LIMIT_NS, _LIMIT_RATIO * self.a_ns)


def compare_durations(a: KernelSet, b: KernelSet) -> tuple[KernelDuration, ...]:
    """The kernels of both sets whose durations differ, by their share of the difference."""
    others = {entry.key: entry.median_ns for entry in b.entries}
    shared = (
        KernelDuration(
            key=entry.key, count=entry.count, a_ns=entry.median_ns, b_ns=others[entry.key]
        )
        for entry in a.entries
        if entry.key in others
    )
    differing = [item for item in shared if item.differs]
    return tuple(sorted(differing, key=lambda item: -abs(item.b_ns - item.a_ns) * item.count))
