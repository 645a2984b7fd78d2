"""What each kind of test finds for its time: small faults are planted in the package one by one.

A fault is a comparison the other way, `and` for `or`, a `not` that is missing, a number that is one
more, or a function that returns None. It is planted in a copy of the installed package, and against
that copy run the unit tests of the folder that has the fault, and all tests of each other kind. It
is found if a test fails that passes against a copy without it. The package must be installed as
users do it: an editable install would hide the copy.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import ftax
from ftax import _core
from ftax.errors import RunnerError
from record import figure, finish, make_parser, progress, show

ROOT = Path(__file__).parents[1]
PACKAGE = Path(ftax.__file__).parent
KINDS = ("unit", "end_to_end", "hostile")
_LIMIT_S = 900.0  # after which a test hangs
_OTHER = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
          ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
          ast.NotIn: ast.In}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of one file, by the number of its place there."""

    file: str  # relative to the package
    place: int
    line: int
    what: str

    @property
    def room(self) -> str:
        """The folder of the package that it is in."""
        return self.file.partition("/")[0]


def find_places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """What can be made wrong in a file, in the order of its source, with words for it."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[operator]) if type(operator) in _OTHER:
                yield node, "comparison the other way"
            case ast.BoolOp():
                yield node, "`and` for `or`, or `or` for `and`"
            case ast.UnaryOp(op=ast.Not()):
                yield node, "`not` is missing"
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield node, f"{value + 1} for {value}"
            case ast.Return(value=ast.expr()):
                yield node, "returns None"


def plant(source: str, place: int) -> str:
    """The source with that place made wrong."""
    tree = ast.parse(source)
    node, _ = list(find_places(tree))[place]
    match node:
        case ast.Compare(ops=[operator]):
            node.ops = [_OTHER[type(operator)]()]
        case ast.BoolOp(op=operator):
            node.op = ast.And() if isinstance(operator, ast.Or) else ast.Or()
        case ast.UnaryOp():
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case ast.Constant(value=value):
            node.value = value + 1
        case ast.Return():
            node.value = ast.Constant(None)
    return ast.unparse(ast.fix_missing_locations(tree))


def choose_faults(count: int, seed: int) -> list[Fault]:
    """So many, each equally likely among all places of rooms that have unit tests."""
    every = []
    for path in sorted(PACKAGE.glob("*/**/*.py")):
        name = str(path.relative_to(PACKAGE))
        if not (ROOT / "tests" / "unit" / name.partition("/")[0]).is_dir():
            continue
        for place, (node, what) in enumerate(find_places(ast.parse(path.read_text()))):
            every.append(Fault(name, place, getattr(node, "lineno", 0), what))
    return random.Random(seed).sample(every, count)


def run_tests(site: Path, paths: list[str]) -> tuple[list[str], float]:
    """The first tests that fail against the package in ``site``, and the seconds that it took."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path[1:]]),
                   "OMP_NUM_THREADS": "1"}  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider",
               "--maxfail=3", "-m", "not timing and not slow", *paths]  # fmt: skip
    start = time.monotonic()
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
            timeout=_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"{paths[0]} hangs"], _LIMIT_S
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ended.stdout, re.MULTILINE)
    if ended.returncode and not failed:
        raise RunnerError(f"pytest could not start: {ended.stdout[-300:]}{ended.stderr[-300:]}")
    return failed, time.monotonic() - start


def make_site(folder: Path, fault: Fault | None = None) -> Path:
    """A folder with a copy of the package, with the fault, for a process to import it from."""
    copy = folder / "ftax"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (copy / Path(_core.__file__).name).symlink_to(_core.__file__)
    if fault:
        path = copy / fault.file
        path.write_text(plant(path.read_text(), fault.place))
    return folder


def list_paths(kind: str, room: str | None = None) -> list[str]:
    """The tests of a kind; of the unit tests those of a folder of the package."""
    return [f"tests/unit/{room}" if kind == "unit" and room else f"tests/{kind}"]


def try_fault(fault: Fault, plain: Path) -> dict[str, object]:
    """The tests of each kind that find it, and after how many seconds."""
    found, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        site = make_site(Path(folder), fault)
        for kind in KINDS:
            failed, seconds[kind] = run_tests(site, list_paths(kind, fault.room))
            tests = [test for test in failed if "::" in test]
            again = run_tests(plain, tests)[0] if tests else []
            found[kind] = [test for test in failed if test not in again]
    words = ", ".join(kind for kind in KINDS if found[kind]) or "nothing"
    progress(f"{fault.file}:{fault.line} ({fault.what}) is found by {words}")
    return {**asdict(fault), "found_by": found, "seconds": seconds}


def time_kind(kind: str, plain: Path) -> float:
    """The seconds of all its tests in one process, without a fault."""
    failed, seconds = run_tests(plain, list_paths(kind))
    progress(f"{kind} without a fault: {seconds:.0f} s {' '.join(failed)}")
    return seconds


def main() -> None:
    """Plant, print a table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--faults", type=int, default=14)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    faults = choose_faults(2 if options.quick else options.faults, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        plain = make_site(Path(folder))
        raw = [try_fault(fault, plain) for fault in faults]
        seconds = {kind: time_kind(kind, plain) for kind in KINDS}
    rows, figures = [], []
    founds = [{kind for kind in KINDS if row["found_by"][kind]} for row in raw]
    for kind in KINDS:
        count = sum(kind in kinds for kinds in founds)
        alone = sum(kinds == {kind} for kinds in founds)
        rows.append((kind, str(count), str(alone), f"{seconds[kind]:.0f}"))
        figures += [
            figure(f"{kind}: faults found of {len(faults)}", count),
            figure(f"{kind}: faults that no other kind found", alone),
            figure(f"{kind}: all its tests in one process", seconds[kind], "s"),
        ]
    figures.append(figure(f"any kind: faults found of {len(faults)}", sum(map(bool, founds))))
    show(f"{len(faults)} planted faults", ("kind", "found", "by it alone", "all tests, s"), rows)
    finish(__file__, options, figures, raw=raw)


if __name__ == "__main__":
    main()
