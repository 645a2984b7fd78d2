"""The fixture in a test of a user's: what passes, what fails, and how that reads."""

import sys
from pathlib import Path
from subprocess import run

import pytest

import ftax.budgets.count_step  # noqa: F401  (once: pytester forgets what its runs import)

PYTHON = Path(__file__).parents[3] / "python"
TEST = """
import torch

def step(x):
    y = x * 2
    return y + 1

def test_step(ftax_budget):
    counts = ftax_budget(step, torch.ones(3), BUDGET)
    assert counts["operators"] == OPERATORS
"""


@pytest.fixture
def run_test(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others take seconds

    def run_it(budget, *options, operators=2, change=("", "")):
        text = TEST.replace("BUDGET", budget).replace("OPERATORS", str(operators))
        pytester.path.joinpath("test_it.py").write_text(text.replace(*change))
        sys.modules.pop("test_it", None)
        return pytester.runpytest_inprocess("-p", "ftax_pytest", *options)

    return run_it


def test_within_a_budget_it_passes(run_test):
    run_test("host_reads=0, operators=2").assert_outcomes(passed=1)


def test_a_breach_says_expected_got_and_where(run_test):
    found = run_test("operators=1")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(
        [
            "*counts = ftax_budget(step, torch.ones(3), operators=1)",
            "E *operator calls: expected at most 1 (budget), got 2",
            "E *at test_it.py:5 in step: +1 aten::mul.Tensor",
            "E *y = x * 2",
        ]
    )
    found.stdout.no_fnmatch_line("*def __call__*")


def test_a_snapshot_is_written_read_and_held(run_test, pytester):
    missing = run_test("snapshot=True")
    missing.stdout.fnmatch_lines("E *there is no baseline test_it.test_step.txt yet*--ftax-update*")
    run_test("snapshot=True", "--ftax-update").assert_outcomes(passed=1)
    baseline = pytester.path / "ftax_baselines" / "test_it.test_step.txt"
    assert "operators 2\n" in baseline.read_text()
    run_test("snapshot=True").assert_outcomes(passed=1)
    change = ("return y + 1", "return y + float(y.max())")
    changed = run_test("snapshot=True", change=change)
    changed.stdout.fnmatch_lines(
        [
            "E *host reads: expected at most 0 (baseline), got 1",
            "E *at test_it.py:6 in step: +1 aten::_local_scalar_dense",
            "E *return y + float(y.max())",
        ]
    )


def test_a_count_that_is_not_asked_for_may_differ(run_test):
    step = (
        "    y = x * 2",
        "    step.calls = getattr(step, 'calls', 0) + 1\n"
        "    for _ in range(step.calls): (lambda: None)()\n"
        "    y = x * 2",
    )
    run_test("operators=2", change=step).assert_outcomes(passed=1)
    asked = run_test("operators=2, python_calls=100", change=step)
    asked.stdout.fnmatch_lines("E *Python calls: *in two runs of the same work*")


def test_each_test_has_a_baseline_of_its_own(pytester, run_test):
    run_test("snapshot=True", "--ftax-update")
    pytester.makepyfile(
        test_more="""
        import pytest

        class TestOne:
            @pytest.mark.parametrize("name", ["a b", "a/b"])
            def test_it(self, ftax_budget, name):
                ftax_budget(lambda: None, snapshot=True)
                ftax_budget(lambda: [None], snapshot=True)

        class TestOther(TestOne):
            pass
        """
    )
    pytester.runpytest_inprocess("-p", "ftax_pytest", "--ftax-update").assert_outcomes(passed=5)
    names = {path.name for path in pytester.path.joinpath("ftax_baselines").iterdir()}
    assert len(names) == 9
    assert "test_it.test_step.txt" in names


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("", "is given no budget: give numbers"),
        ("operator=1", "'operator' is not counted"),
        ("operators=-1", "operators is -1"),
        ("allow=['x']", "is given no budget"),
    ],
)
def test_it_needs_a_budget_that_there_is(run_test, budget, said):
    lines = run_test(budget).outlines
    assert any(line.startswith("E ") and said in line for line in lines)


def test_where_it_is_not_used_neither_torch_nor_ftax_is_imported(tmp_path):
    test = "import sys\n\ndef test_it():\n    assert not {'torch', 'ftax'} & {*sys.modules}"
    (tmp_path / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "ftax_pytest"]
    done = run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(PYTHON), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
