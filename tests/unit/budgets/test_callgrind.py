"""Instructions by callgrind: its profiles, the request that switches it on, and what it counts."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ftax.budgets import callgrind
from ftax.budgets.budget_file import read_budget_file
from ftax.budgets.callgrind import Callgrind, make_command, read_profiles
from ftax.budgets.run_check import check
from ftax.errors import RunnerError, UnavailableError

PROFILE = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 7
part: 1

positions: line
events: Ir
summary: 1000

ob=(1) /usr/lib/libpython3.11.so
fl=(1) ceval.c
fn=(1) eval
10 600
+2 50
cob=(2) /lib/libc.so.6
cfi=(2) malloc.c
cfn=(2) malloc
calls=2 30
+1 340
fn=(3) eval'2
* 5
ob=(2)
fl=(2)
fn=(2)
30 339
fi=(3) inline.h
31 1
fn=(4) 0x0000000000001234
-1 5
"""
needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None or platform.machine() != "x86_64",
    reason="needs valgrind, on x86_64",
)


def test_a_profile_is_summed_by_function_without_what_that_calls(tmp_path):
    path = tmp_path / "profile.7.1"
    path.write_text(PROFILE)
    tally, version = read_profiles([path])
    assert version == "callgrind-3.19.0"
    assert tally.total == 1000
    assert {fact.key: fact.count for fact in tally.facts} == {
        "eval in libpython3.11.so": 655,
        "malloc in libc.so.6": 340,
        "other functions in libc.so.6": 5,
    }


def test_a_profile_that_is_not_there_is_told(tmp_path):
    with pytest.raises(RunnerError, match=r"callgrind wrote no profile\.7\.1"):
        read_profiles([tmp_path / "profile.7.1"])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the request is x86-64's code")
def test_the_request_does_nothing_outside_of_valgrind(tmp_path):
    with pytest.raises(UnavailableError, match="does not run under valgrind"):
        Callgrind(tmp_path)


@pytest.mark.parametrize(
    ("machine", "words"),
    [("x86_64", "is not installed: `apt-get install"), ("riscv64", "this is riscv64")],
)
def test_a_machine_without_it_is_told_why(monkeypatch, tmp_path, machine, words):
    monkeypatch.setattr(callgrind.shutil, "which", lambda _: None)
    monkeypatch.setattr(callgrind.platform, "machine", lambda: machine)
    with pytest.raises(UnavailableError, match=words):
        make_command(tmp_path)


STEP = """\
import torch


def step(x):
    for _ in range({rounds}):
        pass
    return x + 1


def make():
    return step, torch.ones(3)
"""


def check_here(folder, budget, *, rounds=0, update=False):
    (folder / "m.py").write_text(STEP.format(rounds=rounds))
    (folder / "ftax.toml").write_text(
        f"[steps.add]\nstep = 'm.py:make'\nbudget = {{callgrind = {budget}}}\n"
    )
    file = read_budget_file(folder / "ftax.toml")
    (found,) = check(file, file.choose([]), update=update)
    (held,) = [item for item in found.held if item.kind == "callgrind"]
    return held


def test_without_it_all_else_is_counted_and_this_cannot_be_told(monkeypatch, tmp_path):
    monkeypatch.setattr(callgrind.shutil, "which", lambda _: None)
    held = check_here(tmp_path, 100)
    assert held.verdict == "cannot tell"
    assert "expected at most 100 (budget), and not counted: valgrind, whose" in held.describe()


@needs_valgrind
@pytest.mark.slow
def test_more_than_the_margin_is_a_breach_and_names_the_function(tmp_path):
    """Three runs under valgrind: a minute."""
    assert check_here(tmp_path, "'1 %'", update=True).verdict == "within"
    assert check_here(tmp_path, "'1 %'").verdict == "within"
    held = check_here(tmp_path, "'1 %'", rounds=200)
    assert held.verdict == "breach"
    assert "_PyEval_EvalFrameDefault" in {fact.what for fact in held.new}


LOAD = """\
import importlib.util, sys, types
from pathlib import Path

# What the file imports of others takes long under valgrind, and counts nothing.
for name in ("torch", "ftax", "ftax.budgets", "ftax.budgets.counts", "ftax.errors"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["ftax.budgets.counts"].Notes = sys.modules["ftax.budgets.counts"].Tally = object
sys.modules["ftax.errors"].RunnerError = sys.modules["ftax.errors"].UnavailableError = OSError
spec = importlib.util.spec_from_file_location("callgrind", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
counter = module.Callgrind(Path(sys.argv[2]))


def call(number):
    for _ in range(number):
        pass


for number in (1000, 1000, 3000):
    print(counter.count(lambda: call(number)))
"""


def count_loops(folder):
    folder.mkdir()
    command = [*make_command(folder), sys.executable, "-c", LOAD, callgrind.__file__, str(folder)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [read_profiles([Path(line)])[0].total for line in said.splitlines()]


@needs_valgrind
def test_a_call_alone_is_counted_and_in_each_process_nearly_the_same(tmp_path):
    first, second = count_loops(tmp_path / "a"), count_loops(tmp_path / "b")
    assert first == pytest.approx(second, rel=3e-3)
    _, once, thrice = first
    assert 2000 * 5 < thrice - once < 2000 * 200
