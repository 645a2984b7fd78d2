"""What a capture holds to, in words: what it checks at each call, and what it takes as fixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ftax.captures.program import Program
from ftax.errors import say_count

_FEW = 12  # lines of a list that is printed
_ALWAYS_FROZEN = (
    "what C++ extensions read without an operator call",
    "functions and classes of torch and of Python's library, and what code of libraries names",
    "attributes that Python code gives to a tensor that is an argument",
    "whether an argument is the very tensor that the code finds elsewhere (x is self.weight)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """One recorded call.

    Attributes:
        arguments: that it stands for.
        reason: why it was recorded, where others were before.
        kind: "tape" or "graph".
        operators: how many calls a replay makes; of compiled code, how many graphs it launches.
        contents: the two in words: "tape of 12 operator calls".
        guarded: what is compared before each call, by name: "model.scale".
        frozen: what it read, or could have, and is not compared.
        baked: numbers that it read of tensors and that depend on no input and no state.
        checked: how many numbers it reads that do, compared after each replay.
        warnings: of the recording.
    """

    arguments: str
    reason: str
    kind: str
    operators: int
    contents: str
    guarded: tuple[str, ...]
    frozen: tuple[str, ...]
    baked: tuple[str, ...]
    checked: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All calls that were recorded. ``calls`` counts how calls were answered: "replayed", "eager",
    "recorded"."""

    name: str
    programs: tuple[ProgramFacts, ...]
    calls: dict[str, int]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.name}: {say_count(len(self.programs), 'recorded call')}"]
        if self.calls:
            answered = ", ".join(f"{count} {how}" for how, count in sorted(self.calls.items()))
            lines.append(f"calls so far: {answered}")
        lines += self.notes
        told: set[str] = set()  # what several have in common is listed once
        for facts in self.programs:
            lines += ["", f"{facts.contents}: {facts.arguments}"]
            if facts.reason:
                lines.append(f"  recorded since {facts.reason}")
            for title, items in (
                ("compared before each call", sorted(facts.guarded, key=_is_far)),
                ("frozen: not compared", facts.frozen),
                ("read on the host and baked in", facts.baked),
            ):
                lines += _draw_list(title, [item for item in items if item not in told], len(items))
                told.update(items)
            if facts.checked:
                lines.append(f"  read on the host and compared after each replay: {facts.checked}")
            new = [warning for warning in facts.warnings if warning not in told]
            lines += [f"  ! {warning}" for warning in new]
            told.update(new)
        return "\n".join(lines)


def explain(
    name: str, programs: Iterable[Program], calls: dict[str, int], note: str
) -> Explanation:
    """Facts of each program."""
    return Explanation(
        name=name,
        programs=tuple(_describe(program) for program in programs),
        calls=calls,
        notes=(note,) if note else (),
    )


def _describe(program: Program) -> ProgramFacts:
    return ProgramFacts(
        arguments=program.signature.describe(),
        reason=program.reason,
        kind=program.kind,
        operators=program.operators,
        contents=program.contents,
        guarded=tuple(program.state.places),
        frozen=(*program.executed.changing, *program.state.frozen, *_ALWAYS_FROZEN),
        baked=program.baked,
        checked=len(program.checked),
        warnings=program.warnings,
    )


def _is_far(guarded: str) -> bool:
    """Whether a name is of the code around what was captured: those come last."""
    return guarded.startswith(("globals of ", "the code of ", "torch.")) or " of " in guarded


def _draw_list(title: str, new: Sequence[str], count: int) -> list[str]:
    """``new`` of ``count`` items; the others stand above."""
    if not count:
        return []
    shown = [f"    {item}" for item in new[:_FEW]]
    if len(new) > _FEW:
        shown.append(f"    and {len(new) - _FEW:,} more")
    return [f"  {title} ({count:,}{'' if new else ', all of them above'}):", *shown]
