"""The counts of steps beside their budgets; below, what is new in each breach, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from ftax.budgets.budget_file import FILE, FOLDER
from ftax.budgets.run_check import Checked
from ftax.errors import describe
from ftax.reports.table import Printout, Rows

_NO_NUMBER = "-"
_UPDATE = f"`ftax check --update` writes what was counted to {FOLDER}/"


def draw_check(checked: Sequence[Checked]) -> Printout:
    """One table of all steps, a row a count that is not 0 everywhere, and what to do."""
    rows = [row for item in checked for row in _list_rows(item)]
    table = Rows(
        columns=("step", "count", "budget", "measured", "verdict"),
        numeric=("budget", "measured"),
        rows=tuple(rows),
    )
    notes = [note for item in checked for note in _list_notes(item)]
    notes += _list_remedies(checked)
    return Printout(
        tables=(table,),
        notes=tuple(notes),
        warnings=tuple(f"{item.step.name}: {note}" for item in checked for note in item.notes),
    )


def _list_rows(checked: Checked) -> Iterator[tuple[str, ...]]:
    name = checked.step.name
    if checked.error is not None:
        yield name, _NO_NUMBER, _NO_NUMBER, _NO_NUMBER, _say_error(checked)
    for held in checked.held:
        if held.measured or held.most or held.source == "budget" or held.verdict == "cannot tell":
            texts = (held.words, held.limit or _NO_NUMBER, held.got or _NO_NUMBER)
            yield name, *texts, held.verdict


def _say_error(checked: Checked) -> str:
    return "cannot tell" if checked.cannot_tell else "failed"


def _list_notes(checked: Checked) -> Iterator[str]:
    name = checked.step.name
    if checked.error is not None:
        yield f"{name}: {describe(checked.error)}"
    for held in checked.held:
        if held.verdict in ("breach", "cannot tell"):
            yield f"{name}: {held.describe()}"
            yield from (f"  {place}" for place in held.list_places())


def _list_remedies(checked: Sequence[Checked]) -> Iterator[str]:
    """What to do, once for all steps."""
    held = [held for item in checked for held in item.held]
    over = {item.source for item in held if item.verdict == "breach"}
    if "budget" in over:
        yield f"Over a budget: take it out again, or raise the number in {FILE} if it is meant."
    if any(source.startswith("baseline") for source in over):
        yield f"More than the baseline: take it out again; if it is meant, {_UPDATE}."
    elif any(
        item.verdict == "below" and item.source.startswith(("baseline", "budget")) for item in held
    ):
        yield f"Less than the baseline: {_UPDATE}."
    if any(item.verdict == "cannot tell" and item.measured is not None for item in held):
        yield (
            "What cannot be told is not the same in each run, or the baseline is of another "
            'setting: fix what the step draws or keeps by reset=, write "any" as its budget, or '
            "write the baseline here."
        )
    if new := [item.step.name for item in checked if item.is_unknown]:
        yield f"No budget and no baseline yet: {', '.join(new)}; {_UPDATE}: commit that."


def write_junit(checked: Sequence[Checked]) -> bytes:
    """All of it as JUnit XML, a test case a count."""
    suite = ElementTree.Element("testsuite", name="ftax check")
    failures = errors = 0
    for item in checked:
        name = item.step.name
        if item.error is not None:
            case = ElementTree.SubElement(suite, "testcase", classname=name, name="counts")
            ElementTree.SubElement(case, "error", message=_clean(describe(item.error)))
            errors += 1
        for held in item.held:
            case = ElementTree.SubElement(suite, "testcase", classname=name, name=held.words)
            if held.verdict in ("breach", "cannot tell"):
                what = ElementTree.SubElement(case, "failure", message=_clean(held.describe()))
                what.text = _clean("\n".join(held.list_places()))
                failures += 1
    for key, number in (("tests", len(suite)), ("failures", failures), ("errors", errors)):
        suite.set(key, str(number))
    ElementTree.indent(suite)
    written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _clean(text: str) -> str:
    """Without the characters that XML has no way to write."""
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")
