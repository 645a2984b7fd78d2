"""ftax keeps the budgets of the ftax.toml in its repository."""

from pathlib import Path

from support.forks import run_command

ROOT = Path(__file__).parents[2]


def test_ftax_is_within_its_budgets():
    found = run_command("check", cwd=ROOT, environment={"COLUMNS": "140"})
    assert found.returncode == 0, found.stdout + found.stderr
