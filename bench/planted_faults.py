"""What each kind of test finds for its time: small faults are planted in the package one by one.

A fault is a comparison the other way, `and` for `or`, a `not` that is missing, a number that is one
more, or a function that returns None. It is planted in a copy of the installed package, and the
tests of each kind run against that copy until one fails: the unit tests of the room that has the
fault, then all tests of each other kind.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import ftax
from ftax import _core
from record import figure, finish, make_parser, progress, show

ROOT = Path(__file__).parents[1]
PACKAGE = Path(ftax.__file__).parent
KINDS = ("unit", "end_to_end", "hostile")
_LIMIT_S = 900.0
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


def run_tests(site: Path, paths: list[str]) -> tuple[bool, float]:
    """Whether they pass against the package in ``site``, and the seconds until that was known."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path[1:]]),
                   "OMP_NUM_THREADS": "1"}  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
               "-m", "not timing and not slow", *paths]  # fmt: skip
    start = time.monotonic()
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False, _LIMIT_S
    return ended.returncode == 0, time.monotonic() - start


def make_site(folder: Path) -> Path:
    """A folder with a copy of the package, for a process to import it from."""
    copy = folder / "ftax"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (copy / Path(_core.__file__).name).symlink_to(_core.__file__)
    return folder


def list_paths(kind: str, room: str | None) -> list[str]:
    """The tests of a kind; of the unit tests those of a room."""
    return [f"tests/unit/{room}" if kind == "unit" and room else f"tests/{kind}"]


def try_fault(fault: Fault) -> dict[str, object]:
    """Which kinds of test find it, and after how many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        site = make_site(Path(folder))
        path = site / "ftax" / fault.file
        path.write_text(plant(path.read_text(), fault.place))
        found = {}
        for kind in KINDS:
            passed, seconds = run_tests(site, list_paths(kind, fault.room))
            found[kind] = None if passed else round(seconds, 1)
    words = ", ".join(kind for kind in KINDS if found[kind] is not None) or "nothing"
    progress(f"{fault.file}:{fault.line} ({fault.what}) is found by {words}")
    return {**asdict(fault), "found_after_s": found}


def time_kinds() -> dict[str, float]:
    """The seconds of all tests of each kind in one process, without a fault."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        site = make_site(Path(folder))
        for kind in KINDS:
            passed, seconds[kind] = run_tests(site, list_paths(kind, None))
            progress(f"{kind}: {'passed' if passed else 'FAILED'} in {seconds[kind]:.0f} s")
    return seconds


def main() -> None:
    """Plant, print a table, save the record."""
    parser = make_parser(__doc__)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="faults at a time")
    options = parser.parse_args()
    faults = choose_faults(4 if options.quick else options.faults, options.seed)
    with ThreadPoolExecutor(options.at_once) as pool:
        raw = list(pool.map(try_fault, faults))
    seconds = time_kinds()
    found = [{kind for kind in KINDS if row["found_after_s"][kind] is not None} for row in raw]
    rows, figures = [], []
    for kind in KINDS:
        share = 100 * sum(kind in kinds for kinds in found) / len(found)
        alone = 100 * sum(kinds == {kind} for kinds in found) / len(found)
        rows.append((kind, f"{share:.0f}", f"{alone:.0f}", f"{seconds[kind]:.0f}"))
        figures += [
            figure(f"{kind}: faults found", share, "%"),
            figure(f"{kind}: faults that no other kind found", alone, "%"),
            figure(f"{kind}: all its tests, one process", seconds[kind], "s"),
        ]
    any_kind = 100 * sum(map(bool, found)) / len(found)
    figures.append(figure("any kind: faults found", any_kind, "%"))
    columns = ("kind", "found, %", "by it alone, %", "all tests, s")
    show(f"{len(faults)} planted faults", columns, rows)
    finish(__file__, options, figures, raw=raw)


if __name__ == "__main__":
    main()
