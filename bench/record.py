"""What the scripts of this folder share: fresh processes, figures with targets, and the record.

A script is its own worker: it starts itself with ``--worker``, once a repetition, since two numbers
from one process share its memory layout. A figure is the median over processes. A missed target is
a result; a script that breaks exits with a failure.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from ftax.errors import FtaxError, InvalidArgumentError, RunnerError, describe
from ftax.ladders.receipt import Receipt
from ftax.machines.environment import collect_environment
from ftax.records.store import find_results as find_file
from ftax.records.store import make_line, read_records
from ftax.reports.table import Rows

SCHEMA_VERSION = 1
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with one value a process, and the range that was aimed at."""

    name: str
    values: tuple[float, ...]
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def value(self) -> float:
        """The median over processes."""
        return statistics.median(self.values)

    @property
    def target(self) -> str | None:
        """The range in words; None where there is no target."""
        ends = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{words} {end:g}" for words, end in ends if end is not None) or None

    @property
    def met(self) -> bool | None:
        """Whether the median lies in that range."""
        if self.target is None:
            return None
        low = -math.inf if self.at_least is None else self.at_least
        return low <= self.value <= (math.inf if self.at_most is None else self.at_most)

    def to_dict(self) -> dict[str, object]:
        """As it is stored."""
        return {
            "value": self.value, "unit": self.unit, "target": self.target, "met": self.met,
            "values": list(self.values),
        }  # fmt: skip


def figure(
    name: str,
    values: float | Iterable[float],
    unit: str = "",
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Figure:
    """A figure of one value, or of one a process."""
    several = values if isinstance(values, Iterable) else (values,)
    return Figure(
        name=name, values=tuple(map(float, several)), unit=unit, at_most=at_most, at_least=at_least
    )


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """The options that every script has."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small settings, saved nowhere")
    parser.add_argument("--processes", type=int, default=3, help="fresh processes a figure")
    parser.add_argument(
        "--workers-limit", type=float, metavar="S", help="begin no process that would end after S"
    )
    parser.add_argument("--results", type=Path, help="folder for the record")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


def add_part_options(parser: argparse.ArgumentParser, *, duration_s: float) -> None:
    """The options of a script that takes parts one after the other, on a device."""
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="narrow models, on short inputs")
    parser.add_argument(
        "--only", default="", help="by commas: names of parts, or words in their names"
    )
    parser.add_argument(
        "--duration", type=float, default=duration_s, help="seconds of rounds a part"
    )
    parser.add_argument("--time-limit", type=float, default=1e9, help="begin no part after it")


def take_parts(
    script: str, wanted: Mapping[str, Callable[[], dict[str, Any]]], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """What each part that is asked for gives; one that fails is told and left out, and Ctrl-C ends
    them with what there is.

    Each is kept as soon as it is there, in ``<results>/<script>_parts.jsonl``. What that file has
    of earlier runs on such a device is given too, so that figures are of all pieces of a study.
    """
    folder = find_folder(options)
    path = None if folder is None else folder / f"{Path(script).stem}_parts.jsonl"
    environment = collect_environment(device=options.device).to_dict()
    where = {"device": name_device(environment), "tiny": options.tiny}
    found: dict[str, dict[str, Any]] = {
        line["part"]: line["found"]
        for line in ([] if path is None else read_lines(path))
        if all(line[key] == value for key, value in where.items())
    }
    start = time.monotonic()
    for name, take in wanted.items():
        is_wanted = any(
            words == name or (words not in wanted and words in name)
            for words in options.only.split(",")
        )
        if not is_wanted or time.monotonic() - start > options.time_limit:
            continue
        progress(name)
        found.pop(name, None)  # of an earlier run, which a failure of this one takes the place of
        try:
            found[name] = take()
        except (FtaxError, RuntimeError) as error:
            progress(f"{name} failed: {describe(error)}")
        except KeyboardInterrupt:
            progress(f"{name} was stopped")
            break
        else:
            progress(json.dumps(found[name])[:400])
            if path is not None:
                head = make_head(script, environment)
                append_line(path, {**head, "part": name, **where, "found": found[name]})
    return found


def run_parts(
    script: str,
    wanted: Mapping[str, Callable[[], dict[str, Any]]],
    options: argparse.Namespace,
    list_figures: Callable[[dict[str, dict[str, Any]]], Sequence[Figure]],
) -> None:
    """Take the parts, of which each is told as it comes, and append the record."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # programs that were started end
    found = take_parts(script, wanted, options)
    environment = collect_environment(device=options.device).to_dict()
    figures = list_figures(found)
    finish(script, options, figures, raw=list(found), environment=environment)


def name_device(environment: Mapping[str, Any]) -> str:
    """The kind of it: "NVIDIA H200", or that of the CPU."""
    gpu = environment.get("gpu")
    return str(gpu["name"] if gpu else environment["host"]["cpu_model"])


def run_workers(script: str, options: argparse.Namespace, *extra: str) -> list[Any]:
    """What ``script --worker`` printed on its last line, once per process: at least one, and with
    ``--workers-limit`` no more than end in time."""
    name = Path(script).stem
    if options.processes < 1:
        raise InvalidArgumentError(f"--processes is {options.processes}; give 1 or more")
    outputs: list[Any] = []
    longest_s, start = 0.0, time.monotonic()
    limit_s = options.workers_limit or math.inf
    for index in range(options.processes):
        begin = time.monotonic()
        if outputs and begin - start + longest_s > limit_s:
            progress(f"{name}: {index} of {options.processes} processes fit in {limit_s:g} s")
            break
        progress(f"{name}: process {index + 1} of {options.processes}")
        flags = ["--worker", *(["--quick"] if options.quick else []), *extra]
        outputs.append(run_json([sys.executable, script, *flags]))
        longest_s = max(longest_s, time.monotonic() - begin)
    return outputs


def run_json(
    command: Sequence[str], *, given: str | None = None, timeout_s: float | None = None
) -> Any:
    """The JSON on the last line that ``command`` prints, given ``given`` on its standard input.

    Raises RunnerError if it fails or takes too long, with the last step that it told of.
    """
    try:
        finished = subprocess.run(
            command, input=given, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        told = error.stderr or b""
        text = told if isinstance(told, str) else told.decode(errors="replace")
        last = (text.strip().splitlines() or ["nothing"])[-1]
        raise RunnerError(f"not done after {timeout_s:.0f} s; its last line: {last}") from None
    lines = finished.stdout.splitlines()
    if finished.returncode != 0 or not lines:
        said = finished.stderr.strip().splitlines() or ["it printed nothing"]
        steps = [line for line in said if line.startswith("[") and line != said[-1]]
        after = f" (after {steps[-1]})" if steps else ""
        raise RunnerError(f"a worker ended with exit code {finished.returncode}: {said[-1]}{after}")
    return json.loads(lines[-1])


def progress(text: str) -> None:
    """A line for whoever waits; standard output is kept for tables."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def show(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1
) -> None:
    """Print a table; all but the first ``left`` columns are numbers."""
    table = Rows(
        title=title, columns=tuple(columns), numeric=tuple(columns[left:]),
        rows=tuple(tuple(row) for row in rows),
    )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def finish(
    script: str,
    options: argparse.Namespace,
    figures: Sequence[Figure],
    *,
    raw: object,
    environment: Mapping[str, object] | None = None,
) -> None:
    """Print the figures and append the run's record to ``<results>/<script>.jsonl``.

    ``environment`` is what a worker collected, whose settings are the ones that count; without it,
    this process collects its own. A quick run is saved only where ``--results`` says so.
    """
    name = Path(script).stem
    show_figures(name, figures)
    folder = find_folder(options)
    if folder is None:
        progress(f"{name}: a quick run is not saved; --results FOLDER saves it")
        return
    record = {
        **make_head(script, environment or collect_environment().to_dict()),
        "quick": options.quick,
        "process_count": min((len(figure.values) for figure in figures), default=0),
        "figures": {figure.name: figure.to_dict() for figure in figures},
        "raw": raw,
    }
    append_line(folder / f"{name}.jsonl", record)


def find_folder(options: argparse.Namespace) -> Path | None:
    """Where records go; None for a quick run that no ``--results`` was given for."""
    return options.results or (None if options.quick else RESULTS)


def keep_receipt(script: str, options: argparse.Namespace, receipt: Receipt) -> None:
    """In ``<results>/<script>_records.jsonl``, where there is a folder."""
    if (folder := find_folder(options)) is not None:
        append_text(folder / f"{Path(script).stem}_records.jsonl", make_line(receipt))


def make_head(script: str, environment: Mapping[str, object]) -> dict[str, object]:
    """What every record says of its making."""
    # Without folders, which differ everywhere.
    arguments = [Path(item).name if os.sep in item else item for item in sys.argv[1:]]
    return {
        "schema_version": SCHEMA_VERSION,
        "bench": Path(script).stem,
        "command": " ".join(["python", f"bench/{Path(script).name}", *arguments]),
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment,
    }


def append_line(path: Path, record: Mapping[str, object]) -> None:
    """Append a record as a line of JSON."""
    append_text(path, json.dumps(record, separators=(",", ":"), allow_nan=False))


def append_text(path: Path, line: str) -> None:
    """Append a line in a single write, so that a crash leaves no half of one behind it; to the
    compressed file of that name where there is one, as a stream more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = f"{line}\n".encode()
    found = find_file(path) or path
    with found.open("ab", buffering=0) as file:
        file.write(lzma.compress(content) if found.suffix == ".xz" else content)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file, or of the compressed one of that name; an unfinished last line is left
    out, a missing file is empty."""
    found = find_file(path)
    if found is None:
        return []
    content = found.read_bytes()
    text = (lzma.decompress(content) if found.suffix == ".xz" else content).decode()
    return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]


def read_receipts(name: str, folder: Path = RESULTS) -> list[Receipt]:
    """Those of ``<folder>/<name>.jsonl``, compressed or not."""
    path = folder / f"{name}.jsonl"
    records = read_records(find_file(path) or path).records
    return [item for item in records if isinstance(item, Receipt)]


def show_figures(name: str, figures: Sequence[Figure]) -> None:
    """Print figures against their targets."""
    rows = []
    for figure in figures:
        low, high = min(figure.values), max(figure.values)
        verdict = {True: "met", False: "MISSED", None: "-"}[figure.met]
        span = f"{low:.4g} to {high:.4g}" if len(figure.values) > 1 else "-"
        rows.append(
            (figure.name, f"{figure.value:.4g} {figure.unit}", span, figure.target or "-", verdict)
        )
    columns = ("figure", "median", "over processes", "target", "verdict")
    show(f"{name}: figures", columns, rows)
