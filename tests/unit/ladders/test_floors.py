"""The machine's floors: present, positive, and in the only order that physics allows."""

import pytest

import ftax
from ftax.machines.environment import collect_environment, find_concerns


def test_floors_are_positive_and_python_costs_more_than_nothing():
    floors = {floor.name: floor.time_ns for floor in ftax.measure_floors(quick=True)}
    assert all(time_ns > 0 for time_ns in floors.values())
    assert floors["empty Python call"] > floors["empty runner"]
    assert floors["empty operator, Python"] > floors["empty Python call"]


def test_a_device_that_is_not_there_is_refused():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(ftax.UnavailableError, match="no CUDA device"):
        ftax.measure_floors(device="cuda")


def test_concerns_are_sentences_with_a_remedy():
    for concern in find_concerns(collect_environment()):
        assert ":" in concern
