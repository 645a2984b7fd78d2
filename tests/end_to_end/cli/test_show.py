"""What the command line keeps while it works, and what it shows when it cannot be kept."""

import csv
import io
import json
import os
import signal
import stat
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer

import ftax.cli.show as place
from ftax.cli.show import keep_rounds, saved
from ftax.errors import ResultsError
from ftax.reports.progress import show_progress
from ftax.timing.measurement import Measurement
from support.forks import run_command
from support.records import make_measurement


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def full_disk(monkeypatch):
    """No results file can be written, but for those among temporary files."""

    def append(path, record):
        if Path(path).parent != Path(tempfile.gettempdir()):
            raise ResultsError(f"{path}: No space left on device")
        record.save(path)

    monkeypatch.setattr(place, "append_record", append)


@pytest.fixture
def no_disk(monkeypatch):
    """No results file can be written."""

    def append(path, _record):
        raise ResultsError(f"{path}: No space left on device")

    monkeypatch.setattr(place, "append_record", append)


def measure_and_fail(path):
    with keep_rounds(path) as keep:
        keep(make_measurement([100, 110]))
        raise RuntimeError("illegal memory access")


@pytest.mark.parametrize("beside", [True, False])
def test_kept_rounds_go_away_when_the_command_is_done(tmp_path, temporary, beside):
    with keep_rounds(tmp_path / "receipt.jsonl" if beside else None) as keep:
        keep(make_measurement([100, 110]))
        (kept,) = (tmp_path if beside else temporary).iterdir()
        assert len(Measurement.load(kept)) == 1
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir(), *temporary.iterdir()] == []


def test_kept_rounds_outlive_a_fault_and_the_user_is_told_where(tmp_path, capsys):
    with pytest.raises(RuntimeError):
        measure_and_fail(tmp_path / "receipt.jsonl")
    (kept,) = tmp_path.iterdir()
    assert len(Measurement.load(kept)) == 1
    assert str(kept) in capsys.readouterr().err


def test_rounds_are_kept_under_a_name_that_nobody_can_take_first(tmp_path, temporary):
    """It had the number of the process in it: a link was followed, and a file was in the way."""
    victim = tmp_path / "victim"
    victim.touch()
    for name in (temporary / f"ftax-{os.getpid()}.rounds", tmp_path / "r.jsonl.rounds"):
        name.symlink_to(victim)
    for path in (None, tmp_path / "r.jsonl"):
        with pytest.raises(RuntimeError):
            measure_and_fail(path)
    assert victim.read_bytes() == b""


def test_rounds_that_find_no_room_beside_the_results_are_kept_elsewhere(
    tmp_path, temporary, full_disk, capsys
):
    with pytest.raises(RuntimeError):
        measure_and_fail(tmp_path / "receipt.jsonl")
    (kept,) = temporary.iterdir()
    assert len(Measurement.load(kept)) == 1 and str(kept) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ends", [True, False])
def test_rounds_that_cannot_be_kept_cost_a_warning(tmp_path, temporary, no_disk, capsys, ends):
    """And leave no empty file, however the command ends."""

    with (
        nullcontext() if ends else pytest.raises(RuntimeError),
        keep_rounds(tmp_path / "r") as keep,
    ):
        keep(make_measurement([100, 110]))
        if not ends:
            raise RuntimeError
    said = capsys.readouterr().err
    assert said.startswith("! the rounds were not kept") and "No space left" in said
    assert said.count("\n") == 1
    assert [*tmp_path.iterdir(), *temporary.iterdir()] == []


def test_what_can_be_saved_nowhere_leaves_no_file(tmp_path, temporary, no_disk):
    shown = []
    with pytest.raises(ResultsError), saved(tmp_path / "r", [make_measurement([100, 110])]):
        shown.append("the table")
    assert shown and [*tmp_path.iterdir(), *temporary.iterdir()] == []


# --- Ctrl-C --------------------------------------------------------------------------------------


def press():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("path", ["results.jsonl", None])
def test_ctrl_c_while_results_are_shown_waits_and_says_where_they_are(tmp_path, capsys, path):
    shown = []
    file = None if path is None else tmp_path / path

    def show_slowly():
        press()
        press()
        shown.append("the table")

    with pytest.raises(typer.Exit) as caught, saved(file, [make_measurement([100, 110])]):
        show_slowly()
    assert (caught.value.exit_code, shown) == (130, ["the table"])
    said = capsys.readouterr().err
    where = "--json FILE keeps it" if file is None else f"it is in {file}"
    assert f"interrupted; all that was measured is shown, {where}" in said
    assert file is None or len(Measurement.load(file)) == 1


def test_ctrl_c_while_results_are_written_waits_until_they_are(tmp_path, monkeypatch):
    real = place.append_record

    def append(path, record):
        press()
        real(path, record)

    monkeypatch.setattr(place, "append_record", append)
    shown, path = [], tmp_path / "results.jsonl"
    with pytest.raises(typer.Exit), saved(path, [make_measurement([100, 110])]):
        shown.append("the table")
    assert shown and len(Measurement.load(path)) == 1


def test_rounds_are_kept_elsewhere_where_nothing_can_be_made_beside_the_results(temporary):
    with keep_rounds(Path("/proc/receipt.jsonl")) as keep:
        keep(make_measurement([100, 110]))
        assert len(list(temporary.iterdir())) == 1


def test_kept_rounds_that_are_gone_already_cost_nothing(tmp_path):
    with keep_rounds(tmp_path / "receipt.jsonl") as keep:
        keep(make_measurement([100, 110]))
        (kept,) = tmp_path.iterdir()
        kept.unlink()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_saved_is_shown_and_kept_elsewhere(tmp_path, temporary, full_disk):
    shown = []
    records = [make_measurement([100, 110]), make_measurement([200, 210])]
    with (
        pytest.raises(ResultsError, match="No space left") as caught,
        saved(tmp_path / "r", records),
    ):
        shown.append("the table")
    (kept,) = temporary.iterdir()
    assert shown == ["the table"] and str(kept) in str(caught.value)
    assert len(Measurement.load(kept)) == 2


def test_what_cannot_be_saved_is_no_answer_to_a_gate(tmp_path, full_disk):
    with pytest.raises(ResultsError), saved(tmp_path / "r.jsonl", [make_measurement([100, 110])]):
        raise typer.Exit(1)


def test_a_name_cannot_begin_a_line_of_its_own(capsys):
    with show_progress("a\nftax: done\x1b[2J") as progress:
        progress("round\r", 0, 1)
    assert capsys.readouterr().err == r"a\nftax: done\x1b[2J: round\r" + "\n"


def test_json_on_standard_output_is_records_and_nothing_else(tmp_path):
    done = run_command("bench", "bert-1x64", "--runtime", "flat", "--rounds", "3", "--json", "-")
    assert done.returncode == 0, done.stderr
    (tmp_path / "r.jsonl").write_text(done.stdout)
    (measurement,) = Measurement.load(tmp_path / "r.jsonl")
    assert measurement.cell.runtime == "flat"
    assert "bert-1x64: " in done.stderr


PRINTS = """
import os, torch
class Prints(torch.nn.Linear):
    def forward(self, x):
        print("from Python")
        os.write(1, b"from below\\n")
        return super().forward(x)
def make():
    return Prints(4, 4), torch.randn(2, 4)
"""


def test_what_a_model_prints_is_not_among_the_results(tmp_path):
    (tmp_path / "model.py").write_text(PRINTS)
    options = ("--runtime", "flat", "--rounds", "3")
    done = run_command("bench", f"{tmp_path / 'model.py'}:make", *options, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "measurement"
    assert "from Python" in done.stderr and "from below" in done.stderr
    done = run_command("bench", f"{tmp_path / 'model.py'}:make", *options, "--csv")
    assert "from" not in done.stdout


def test_compare_prints_its_record_too(tmp_path):
    for name in ("a", "b"):
        make_measurement([100, 101, 99]).save(tmp_path / f"{name}.jsonl")
    done = run_command(
        "compare", *(str(tmp_path / f"{name}.jsonl") for name in ("a", "b")), "--json", "-"
    )
    assert json.loads(done.stdout)["kind"] == "comparison"


@pytest.mark.parametrize("options", [("--csv", "--json", "-"), ("--json", "-", "--markdown")])
def test_two_things_on_standard_output_are_refused(options):
    done = run_command("bench", "no-such-model", *options)
    assert done.returncode == 2 and "has standard output for itself" in done.stderr


def test_csv_of_a_receipt_has_one_header():
    done = run_command("tax", "bert-1x64", "--rounds", "3", "--runtimes", "none", "--csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["part"] for row in rows] == ["line"] * 3 + ["runtime"] * 3
    assert all(float(row["latency_ns"]) for row in rows)
