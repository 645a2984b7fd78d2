"""`ftax check`: baselines that are written, held, and broken; and a git revision in their place."""

import re
import subprocess
import warnings
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from ftax.cli import ending
from ftax.cli.commands import app
from support.forks import run_command
from support.records import make_measurement

ROOT = Path(__file__).parents[3]
MODEL = """\
import torch


def forward(x):
    y = x * 2
    return y + 1


def train():
    weight = torch.ones(3, requires_grad=True)

    def step(x):
        loss = (weight * x).sum()
        loss.backward()
        return loss

    return step, torch.ones(3)


def make():
    return forward, torch.ones(3)


def fail():
    return (lambda x: x.no_such_thing), torch.ones(3)
"""
BUDGETS = """\
[steps.forward]
step = "budgeted.py:make"
budget = {host_reads = 0}

[steps.train]
step = "budgeted.py:train"
"""
TIMED = "[steps.forward]\nstep = 'budgeted.py:make'\nthreads = 1\nbudget = {latency = '5 %'}\n"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "budgeted.py").write_text(MODEL)
    (tmp_path / "ftax.toml").write_text(BUDGETS)
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys):
    """The command in this process, whose worker is a fork: it has that hash seed already."""
    for name, value in (("COLUMNS", "140"), ("PYTHONHASHSEED", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def run_here(project, *arguments):
        monkeypatch.chdir(project)
        code = ending.run(app, ["check", *arguments])
        return SimpleNamespace(returncode=code, **capsys.readouterr()._asdict())

    return run_here


def test_the_command_from_its_start_to_its_end(project):
    found = run_command("check", "forward", "--update", cwd=project)
    assert found.returncode == 0, found.stderr
    assert (project / "ftax_baselines" / "forward.txt").exists()


def change(project, old, new):
    path = project / "budgeted.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def commit(project):
    for command in (
        ("init", "-q"), ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"),
    ):  # fmt: skip
        subprocess.run(["git", *command], cwd=project, check=True)


def test_from_the_first_run_to_a_breach(project, run):
    first = run(project)
    assert first.returncode == 5, first.err
    assert "No budget and no baseline yet: train; `ftax check --update` writes" in first.out
    updated = run(project, "--update")
    assert updated.returncode == 0, updated.err
    baseline = (project / "ftax_baselines" / "forward.txt").read_text()
    assert "  1 aten::mul.Tensor at budgeted.py in forward: y = x * 2\n" in baseline
    again = run(project)
    assert (again.returncode, again.out) == (0, updated.out)

    change(project, "    y = x * 2", "    # a comment moves lines\n\n    y = x * 2")
    assert run(project).returncode == 0
    change(project, "return y + 1", "y = y + float(y.max())\n    return y + 1")
    broken = run(project, "forward", "--junit", "junit.xml")
    assert broken.returncode == 1, broken.err
    assert "forward: host reads: expected at most 0 (budget), got 1" in broken.out
    assert (
        "at budgeted.py:8 in forward: +1 aten::_local_scalar_dense\n      y = y + float(y.max())"
        in broken.out
    )
    assert "train" not in broken.out
    cases = {
        case.get("name"): case.find("failure")
        for case in ElementTree.parse(project / "junit.xml").getroot()
    }
    assert "budgeted.py:8" in cases["operator calls"].text
    assert cases["copies between devices"] is None


def test_less_than_a_baseline_is_told_and_no_breach(project, run):
    run(project, "--update")
    change(project, "    y = x * 2\n    return y + 1", "    return x + 1")
    found = run(project)
    assert found.returncode == 0, found.out
    assert "Less than the baseline: `ftax check --update`" in found.out


def test_a_revision_needs_no_baseline(project, run):
    commit(project)
    assert run(project, "--base", "HEAD").returncode == 0
    change(project, "loss.backward()", "loss.backward()\n        loss = loss * 1")
    found = run(project, "--base", "HEAD")
    assert found.returncode == 1, found.err
    assert "train: operator calls: expected at most" in found.out
    assert (
        "at budgeted.py:15 in train.<locals>.step: +1 aten::mul.Tensor\n      loss = loss * 1"
        in found.out
    )


def test_a_latency_is_held_to_a_revision_by_turns(project, run, monkeypatch):
    (project / "ftax.toml").write_text(TIMED)
    commit(project)
    seen = []

    def run_pair(sides, plan):
        seen.append((sides, plan.process_index))
        return [
            make_measurement([level] * 5, index=plan.process_index, checks={"rounds_a_turn": 5})
            for level in (100_000, 120_000)
        ]

    monkeypatch.setattr("ftax.ladders.pairs._run_pair", run_pair)
    found = run(project, "--base", "HEAD", "--duration", "0.1", "--junit", "junit.xml")
    assert found.returncode == 1, found.err
    assert re.search(r"latency +\+5 % \(HEAD\) +\+20.0 % +breach", found.out)
    assert "latency: expected at most +5 % (HEAD); now against HEAD: slower" in found.out
    case = ElementTree.parse(project / "junit.xml").getroot().find("testcase[@name='latency']")
    assert "+20.0%" in case.find("failure").get("message")
    (base, now), _ = seen[0]
    assert [side.setting.threads for side in (base, now)] == [1, 1]
    assert now.folder == str(project) != base.folder == base.path[0]
    assert [number for _, number in seen] == [0, 1, 2, 3, 4]


def test_a_latency_without_a_revision_cannot_be_told(project, run):
    (project / "ftax.toml").write_text(TIMED)
    assert run(project, "--update").returncode == 0
    found = run(project)
    assert found.returncode == 5
    assert "there is nothing to compare with: give --base REF" in found.out


@pytest.mark.slow
def test_a_slower_step_is_found_by_the_whole_command(project, run):
    """Five pairs of processes import torch."""
    (project / "sub").mkdir()
    (project / "sub" / "ftax.toml").write_text(TIMED)
    (project / "budgeted.py").rename(project / "sub" / "budgeted.py")
    commit(project)
    change(project / "sub", "    y = x * 2", "    for _ in range(20):\n        y = x * 2")
    found = run(project, "--file", "sub/ftax.toml", "--base", "HEAD", "--duration", "1")
    assert found.returncode == 1, found.out + found.err
    assert re.search(r"latency +\+5 % \(HEAD\) +\+\d+.\d % +breach", found.out)


def test_a_step_that_fails_costs_the_others_nothing(project, run):
    (project / "ftax.toml").write_text(f'{BUDGETS}\n[steps.broken]\nstep = "budgeted.py:fail"\n')
    found = run(project, "--update")
    assert found.returncode == 4, found.err
    assert "no_such_thing" in found.out
    assert (project / "ftax_baselines" / "train.txt").exists()


def test_a_summary_in_markdown(project, run):
    found = run(project, "--update", "--markdown")
    assert "| forward | operator calls | 2 (baseline) | 2 | within |" in found.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--base", "HEAD", "--update"), "leave one out"),
        (("--setup", "true"), "--setup is given without --base"),
        (("--duration", "9"), "--duration is given without --base"),
        (("backward",), "there is no step 'backward'"),
        (("--file", "other.toml"), "there is no other.toml: write one"),
        (("--junit", "no/where.xml"), "there is no folder no"),
    ],
)
def test_wrong_usage_is_told(project, run, arguments, said):
    found = run(project, *arguments)
    assert found.returncode == 2
    assert said in found.err


def test_the_page_shows_what_comes_out(tmp_path, run):
    text = (ROOT / "docs" / "check.md").read_text()
    blocks = dict(
        re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    )
    for name in ("ftax.toml", "budgeted.py"):
        (tmp_path / name).write_text(blocks[name])
    assert run(tmp_path, "--update").returncode == 0
    assert (
        blocks["ftax_baselines/forward.txt"]
        in (tmp_path / "ftax_baselines/forward.txt").read_text()
    )
    change(tmp_path, "return x.relu()", "scale = x.max().item()\n        return x.relu() * scale")
    assert blocks["a breach"].strip() in run(tmp_path).out
