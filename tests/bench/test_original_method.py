"""The paper's way of measuring a point, as the benchmark does it."""

import original_method
import pytest

from ftax.errors import RunnerError

JOB = {"model": "bert-base", "device": "cpu", "dtype": "fp32", "batch": 2, "tiny": True}


class Counting:
    def __init__(self):
        self.calls = 0

    def call(self):
        self.calls += 1


def test_a_point_loads_the_model_and_makes_110_passes(monkeypatch):
    made = []

    def load_model(name, **options):
        made.append((name, options["batch"], Counting()))
        return made[-1][-1]

    monkeypatch.setattr(original_method, "load_model", load_model)
    first, second = (original_method.measure_point(JOB) for _ in range(2))
    assert [(name, batch, model.calls) for name, batch, model in made] == [
        ("bert-base", 2, 110)
    ] * 2
    for point in (first, second):
        assert 0 <= point["load_seconds"] <= point["seconds"]
        assert point["latency_ns"] * 100 <= point["seconds"] * 1e9


def test_a_model_that_cannot_be_loaded_is_an_error(monkeypatch):
    def load_model(name, **options):
        raise RunnerError("no such thing")

    monkeypatch.setattr(original_method, "load_model", load_model)
    with pytest.raises(RunnerError, match="no such thing"):
        original_method.measure_point(JOB)
