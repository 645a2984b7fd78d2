"""Budgets of a program's iterations."""

import pytest
from ftax_run.account import Account, ProcessAccount
from ftax_run.budget import OVER, UNSURE, hold, read_budget
from ftax_run.cli import run
from ftax_run.errors import RunError
from ftax_run.records import append
from ftax_run.sums import Sums
from ftax_run.window import Window

STEP, LOG = ("train.py", 41, "step"), ("logging.py", 7, "note")
BUDGET = """
[run]
budget = {launches = 20, synchronisations = 1}
"""


def make_account(launches=20.0):
    window = Window(
        count=50, wall=50e6, busy=40e6, parts=2,
        work=Sums({"launches": 50 * launches, "kernels": 1000.0}),
        syncs=Sums({STEP: 50.0, LOG: 5.0}),
    )  # fmt: skip
    return Account(["train.py"], processes=[ProcessAccount(7, windows=[window])])


@pytest.fixture
def write(tmp_path):
    def write_file(text):
        path = tmp_path / "ftax.toml"
        path.write_text(text)
        return path

    return write_file


def test_an_iteration_that_does_more_is_over_and_its_waits_are_named(write):
    lines, code = hold(make_account(), read_budget(write(BUDGET)))
    assert code == OVER
    assert lines == [
        "Budget of an iteration",
        "  launches: 20.0 of 20",
        "  synchronisations: 1.1 of 1, over",
        "    1.0 at train.py:41 step",
        "    0.1 at logging.py:7 note",
    ]


def test_what_is_allowed_does_not_count(write):
    allowed = read_budget(write(f'{BUDGET}\nallow = ["logging.py"]'))
    assert hold(make_account(), allowed)[1] == 0
    assert hold(make_account(launches=21.0), allowed)[1] == OVER


@pytest.mark.parametrize(
    "account", [Account(["true"]), Account(["a"], processes=[ProcessAccount(7)])]
)
def test_without_iterations_on_a_gpu_it_cannot_tell(write, account):
    assert hold(account, read_budget(write(BUDGET)))[1] == UNSURE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no budget of a program"),
        ("[run]\nbudget = 3", "has no budget of a program"),
        ("[run]\nbudget = {launch = 3}", "'launch' is not counted: launches, kernels"),
        ("[run]\nbudget = {launches = -1}", "launches is -1"),
        ("[run]\nbudget = {launches = 1.5}", "launches is 1.5"),
        ("[run]\nbudget = {}\nallow = [3]", "allow is a list of texts"),
        ("[run", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(write, text, said):
    with pytest.raises(RunError, match=said):
        read_budget(write(text))


def test_the_command_ends_with_the_verdict(write, tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    append(make_account(), path)
    budget = write(BUDGET)
    assert run(["--show", str(path), "--budget", str(budget)]) == OVER
    assert "synchronisations: 1.1 of 1, over" in capsys.readouterr().err
    script = tmp_path / "ends.py"
    for code, expected in ((3, 3), (0, UNSURE)):
        script.write_text(f"raise SystemExit({code})")
        assert run(["--budget", str(budget), str(script)]) == expected
