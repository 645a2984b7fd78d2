"""What the command line keeps while it works."""

import pytest

from ftax.cli.show import keep_rounds
from ftax.results import Measurement
from records import make_measurement


def test_kept_rounds_go_away_when_the_command_is_done(tmp_path):
    path = tmp_path / "receipt.jsonl"
    with keep_rounds(path) as keep:
        keep(make_measurement([100, 110]))
        assert len(Measurement.load(f"{path}.rounds")) == 1
    assert list(tmp_path.iterdir()) == []


def test_kept_rounds_outlive_a_fault_and_the_user_is_told_where(tmp_path, capsys):
    path = tmp_path / "receipt.jsonl"

    def measure_and_fail():
        with keep_rounds(path) as keep:
            keep(make_measurement([100, 110]))
            raise RuntimeError("illegal memory access")

    with pytest.raises(RuntimeError):
        measure_and_fail()
    assert len(Measurement.load(f"{path}.rounds")) == 1
    assert str(path) in capsys.readouterr().err
