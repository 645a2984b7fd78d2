"""A program that is run again, until its call is measured: by a stand-in for ftax that notes what
it is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ftax_run import second_run
from ftax_run.cli import run
from ftax_run.errors import RunError
from ftax_run.launch import read_identity
from ftax_run.second_run import measure, require_ftax
from ftax_run.target import Target

NOTES = """
import json, os, sys
def measure_call(what, args, kwargs, *, name, caller, path, plan, finish):
    with open(path, "a") as file:
        print(json.dumps({
            "what": repr(what), "args": repr(args), "kwargs": kwargs, "name": name, "plan": plan,
            "caller": caller, "argv": sys.argv, "main": sys.modules["__main__"].__file__,
            "path": sys.path, "PYTHONPATH": os.environ.get("PYTHONPATH"),
            "profile": repr(sys.getprofile()), "pid": os.getpid(),
        }), file=file)
    finish("it holds no tensor" if "refused" in name else "")
"""


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with something that is called ftax, which Python is told to look into."""
    folder = tmp_path / "library"
    (folder / "ftax" / "cli").mkdir(parents=True)
    for name, source in (("__init__", ""), ("cli/__init__", ""), ("cli/program_call", NOTES)):
        (folder / "ftax" / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    # That of no virtual environment, whose hooks may find ftax's own sources first.
    monkeypatch.setattr(sys, "executable", str(Path(sys.executable).resolve()))
    return folder


@pytest.fixture
def python(python: str) -> str:
    return str(Path(python).resolve())


def write(folder: Path, source: str, name: str = "program.py") -> str:
    path = folder / name
    path.write_text(source)
    return str(path)


def find_target(program: str, name: str, *, is_module: bool = False) -> Target:
    """The function whose last line has its name in a comment."""
    lines = Path(program).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {name}"))
    return Target(program, line, name, is_module, 0.9, "program.py:1 main")


def measure_all(
    folder: Path, command: list[str], *targets: Target
) -> tuple[str, list[dict[str, Any]]]:
    path = folder / "receipt.jsonl"
    said = measure(command, list(targets), path, {"duration_s": 3.0})
    lines = path.read_text().splitlines() if path.exists() else []
    return said, [json.loads(line) for line in lines]


STEPS = """
import sys
def make(scale):
    def step(number, /, *rest, factor=2, **more):
        return scale * factor * number  # make.<locals>.step
    return step
class Trainer:
    def step(self, number): return number  # Trainer.step
step = make(3)
for number in range(100_000):
    assert step(number) == 6 * number
    assert step(number, "a", factor=number, other=1) == 3 * number ** 2
    Trainer().step(number)
sys.exit("it ran to its end")
"""


def test_a_function_with_the_arguments_that_it_is_called_with(python: str, tmp_path: Path) -> None:
    program = write(tmp_path, STEPS)
    said, (note,) = measure_all(
        tmp_path, [python, program, "--rate", "7"], find_target(program, "make.<locals>.step")
    )
    assert said == ""
    # The first is seen to begin; of those after it the 21st is measured.
    assert (note["args"], note["kwargs"]) == ("(10, 'a')", {"factor": 10, "other": 1})
    assert note["what"].startswith("<function make.<locals>.step")
    assert (note["caller"], note["plan"]) == ("program.py:1 main", {"duration_s": 3.0})


def test_a_method(python: str, tmp_path: Path) -> None:
    program = write(tmp_path, STEPS)
    _, (note,) = measure_all(tmp_path, [python, program], find_target(program, "Trainer.step"))
    assert note["args"].startswith("(<__main__.Trainer object at ")
    assert note["args"].endswith(", 21)")


MODULE = """
class Module:
    def __init__(self): self.hooks = []
    def register_forward_pre_hook(self, hook, *, prepend, with_kwargs):
        self.hooks.append(hook)
        return type("Handle", (), {"remove": lambda _: self.hooks.remove(hook)})()
    def __call__(self, *args, **kwargs):
        for hook in list(self.hooks): hook(self, args, kwargs)
        return self.forward(*args, mask=None, **kwargs)
    def forward(self, number, mask, scale=1):
        return [number for _ in range(scale)]  # Module.forward
module = Module()
for number in range(100_000): module(number, scale=2)
"""


def test_a_module_as_it_is_called(python: str, tmp_path: Path) -> None:
    program = write(tmp_path, MODULE)
    target = find_target(program, "Module.forward", is_module=True)
    _, (note,) = measure_all(tmp_path, [python, program], target)
    assert note["what"].startswith("<__main__.Module object")
    assert (note["args"], note["kwargs"]) == ("(21,)", {"scale": 2})


SEEN = """
import sys
def look(): return (sys.argv, sys.path, sys.modules["__main__"].__file__, sys.orig_argv)  # look
if len(sys.argv) > 2: print(repr(look()))
else:
    while True: look()
"""


@pytest.mark.parametrize("as_module", [False, True])
def test_the_program_sees_what_it_saw(python: str, tmp_path: Path, as_module: bool) -> None:
    program = write(tmp_path, SEEN)
    words = ["-m", "program"] if as_module else [program]
    plain = subprocess.run(
        [python, *words, "a", "end"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    argv, path, main, _ = eval(plain.stdout)  # of the program above
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        _, (note,) = measure_all(tmp_path, [python, *words, "a"], find_target(program, "look"))
    finally:
        os.chdir(here)
    assert note["argv"] == argv[:-1]
    assert (note["path"], note["main"]) == (path, main)
    assert note["PYTHONPATH"] == os.environ["PYTHONPATH"]
    assert note["profile"] == "None"


def test_the_environments_own_sitecustomize_runs(python: str, tmp_path: Path) -> None:
    write(tmp_path / "library", "import builtins; builtins.customized = 1", "sitecustomize.py")
    source = "def step(): return customized  # step\nwhile True: step()"
    program = write(tmp_path, source)
    said, notes = measure_all(tmp_path, [python, program], find_target(program, "step"))
    assert (said, len(notes)) == ("", 1)


REFUSED = """
import asyncio
def refused(x): return x  # refused
def good(x): return refused(x)  # good
async def serve():
    for number in range(100_000):
        good(number)  # serve
        await asyncio.sleep(0)
asyncio.run(serve())
"""


def test_the_next_one_is_measured(python: str, tmp_path: Path) -> None:
    program = write(tmp_path, REFUSED)
    targets = [find_target(program, name) for name in ("serve", "refused", "good")]
    said, notes = measure_all(tmp_path, [python, program], *targets)
    assert said == ""
    assert [note["name"] for note in notes] == ["refused", "good"]


def test_what_cannot_be_measured_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = write(tmp_path, REFUSED.replace("100_000", "50"))
    targets = [find_target(program, name) for name in ("serve", "refused")]
    said, notes = measure_all(tmp_path, [sys.executable, program], *targets)
    assert [note["name"] for note in notes] == ["refused"]
    assert said.splitlines() == [
        "No receipt: nothing that takes the time could be measured",
        "  serve, called at program.py:1 main, is a coroutine or a generator",
    ]
    assert capfd.readouterr().err == "It cannot be measured: it holds no tensor\n"


def test_nothing_else_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_run, "_PATIENCE_S", 0.2)
    program = write(tmp_path, "def refused(): pass  # refused\nwhile True: refused()")
    said, _ = measure_all(tmp_path, [sys.executable, program], find_target(program, "refused"))
    assert said == "No receipt: nothing that takes the time could be measured"


def test_another_ftax(library: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (library / "ftax" / "cli" / "program_call.py").unlink()
    program = write(tmp_path, "def step(): pass  # step\nfor _ in range(50): step()")
    said, _ = measure_all(tmp_path, [sys.executable, program], find_target(program, "step"))
    assert said == "No receipt: nothing that takes the time could be measured"
    assert "cannot import ftax as new as ftax run (No module" in capfd.readouterr().err


def test_a_program_that_ends_before(tmp_path: Path) -> None:
    program = write(tmp_path, "import sys\ndef step(): pass  # step\nstep()\nsys.exit(3)")
    said, notes = measure_all(tmp_path, [sys.executable, program], find_target(program, "step"))
    assert said == ("No receipt: the program ended (exit code 3) before step, called at "
                    "program.py:1 main, was called 20 times")  # fmt: skip
    assert notes == []
    assert measure([sys.executable, program], [], None, {}).startswith("No receipt: no function")


CHILDREN = """
import multiprocessing, os, sys
def work(rank):
    return rank  # work
def main(rank):
    with open(f"{__file__}.{os.getpid()}.child", "w"): pass
    while True: work(rank)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=main, args=(rank,)) for rank in range(2)]
    for child in children: child.start()
    for child in children: child.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_one_child_is_measured_and_all_are_ended(tmp_path: Path, method: str) -> None:
    program = write(tmp_path, CHILDREN)
    target = find_target(program, "work")
    said, (note,) = measure_all(tmp_path, [sys.executable, program, method], target)
    assert said == ""
    assert note["args"] in ("(0,)", "(1,)")
    children = [int(path.suffixes[-2][1:]) for path in tmp_path.glob("*.child")]
    assert note["pid"] in children
    assert [read_identity(pid) for pid in children] == [None] * len(children)


def test_what_one_child_was_refused_no_other_tries(tmp_path: Path) -> None:
    source = CHILDREN.replace("work", "refused").replace("while True:", "for _ in range(300_000):")
    program = write(tmp_path, source)
    said, notes = measure_all(
        tmp_path, [sys.executable, program, "fork"], find_target(program, "refused")
    )
    assert said.startswith("No receipt")
    assert len(notes) == 1


def test_an_environment_without_ftax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')  # which finds no package
    python.chmod(0o755)
    with pytest.raises(RunError, match=r"--receipt needs ftax .*python3 -m pip install ftax"):
        require_ftax([str(python)])
    require_ftax([sys.executable])
    require_ftax(["make"])  # which may start a Python that has it
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    program = write(tmp_path, "print('it runs')")
    (tmp_path / "bin").mkdir()
    python.rename(tmp_path / "bin" / "python")
    with pytest.raises(RunError, match="needs ftax"):  # and nothing has run
        run(["--receipt", program])


@pytest.mark.parametrize("option", ["--json", "--show=run.jsonl"])
def test_options_that_do_not_go_together(option: str) -> None:
    with pytest.raises(RunError, match=r"leave --(json|show) out"):
        run(["--receipt", option, "train.py"])


@pytest.mark.parametrize("words", [["--receipt", "--duration", "0"], ["--patience", "9"]])
def test_seconds_that_mean_nothing(words: list[str]) -> None:
    with pytest.raises(RunError, match=r"--(duration 0|patience 9): give seconds above 0, and"):
        run([*words, "train.py"])


HOT = """
import sys, time
def step(seconds):
    end = time.perf_counter() + seconds  # step
    while time.perf_counter() < end: pass
for _ in range(60): step(0.01)
print("out", flush=True)
sys.exit(5)
"""


def test_from_the_command_line(tmp_path: Path) -> None:
    write(tmp_path, HOT)
    words = ["--receipt", "-o", "found.jsonl", "--duration", "2", "program.py"]
    source = str(Path(measure.__code__.co_filename).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "ftax_run", *words], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{source}"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (5, "out\n")  # of the first run, and once
    said = done.stderr.splitlines()
    assert "runs the program twice, so what it writes or sends" in said[0]
    assert "Second run, until the hottest call is measured" in said[1:]
    note = json.loads((tmp_path / "found.receipt.jsonl").read_text())
    assert (note["name"], note["args"], note["plan"]) == ("step", "(0.01,)", {"duration_s": 2.0})
    assert note["caller"] == "program.py:6 <module>"
    assert (tmp_path / "found.jsonl").exists()


def test_a_program_that_was_ended_from_outside_is_not_run_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = write(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert run(["--receipt", program]) == -15
    assert "No receipt: the program was ended by SIGTERM" in capfd.readouterr().err
