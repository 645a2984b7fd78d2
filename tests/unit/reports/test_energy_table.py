"""The tables of GPU readings: numbers in their units, and a reason for every dash."""

import pytest

from ftax.instruments.energy import Energy, IdlePower, compute_energy_tax
from ftax.instruments.readings import GpuReadings, PeakMemory
from ftax.instruments.utilisation import Utilisation
from ftax.reports.tables.energy_table import (
    describe_missing,
    draw_gpu_readings,
    format_bytes,
    format_joules,
    make_energy_tax_table,
    make_gpu_table,
)
from ftax.reports.terminal import to_text

IDLE = IdlePower(power_w=75.0, seconds=1.0, settled=True, resolution_ratio=0.005, sm_clock_mhz=345)
MEMORY = PeakMemory(
    held_bytes=2**20, allocated_bytes=3 * 2**29, reserved_bytes=2**31, device_bytes=2**32
)


def make_energy(energy_j, *, idle=IDLE):
    return Energy(
        mode="latency",
        energy_j=energy_j,
        seconds=2.0,
        inferences=1000,
        counter_steps=100,
        resolution_ratio=0.01,
        driven_ratio=0.98,
        idle=idle,
    )


FULL = GpuReadings(
    runtime="eager",
    host="python",
    energy=make_energy(400.0),
    utilisation=Utilisation(
        sms_active_pct=2.6,
        warp_occupancy_pct=0.94,
        dram_bandwidth_pct=None,
        tensor_active_pct=12.0,
        seconds=1.0,
    ),
    memory=MEMORY,
    missing={},
)
BARE = GpuReadings(
    runtime="tape",
    host="cpp",
    energy=None,
    utilisation=None,
    memory=MEMORY,
    missing={"energy": "too short: 0 steps", "utilisation": "not available here: old"},
)


def test_a_row_has_everything_of_one_inference():
    (row, bare) = make_gpu_table([FULL, BARE]).rows
    assert row == (
        "eager",
        "Python",
        "400 mJ",
        "250 mJ",
        "200 W",
        "2.6 %",
        "0.9 %",
        "-",
        "12.0 %",
        "1.5 GiB",
        "2 GiB",
    )
    assert bare == ("tape", "C++", *["-"] * 7, "1.5 GiB", "2 GiB")
    assert len(row) == len(make_gpu_table([FULL]).columns)


def test_every_dash_for_a_whole_reading_has_its_reason_once():
    assert describe_missing([FULL, BARE, BARE]) == [
        "no energy of tape/cpp, tape/cpp: too short: 0 steps",
        "no utilisation of tape/cpp, tape/cpp: not available here: old",
    ]


def test_the_tax_table_says_what_is_not_resolved():
    rungs = [("a", make_energy(400.0)), ("b", make_energy(396.0)), ("c", make_energy(200.0))]
    rows = make_energy_tax_table(compute_energy_tax(rungs)).rows
    assert rows == (
        ("a (not resolved)", "b", "4 mJ", "4 mJ", "1.0%"),
        ("b", "c", "196 mJ", "196 mJ", "49.0%"),
        ("c", "(rest)", "200 mJ", "50 mJ", "50.0%"),
    )


def test_the_page_names_the_idle_power_and_the_reasons():
    lines = compute_energy_tax([("eager/python", make_energy(400.0))])
    text = to_text(draw_gpu_readings([FULL, BARE], lines), width=200)
    assert "Idle, the GPU drew 75.0 W at 345 MHz." in text
    assert "! no energy of tape/cpp: too short" in text
    assert "Energy tax" in text and "SMs active" in text
    unsettled = IdlePower.from_dict({**IDLE.to_dict(), "settled": False, "sm_clock_mhz": None})
    item = GpuReadings.from_dict(
        {**FULL.to_dict(), "energy": make_energy(400.0, idle=unsettled).to_dict()}
    )
    text = to_text(draw_gpu_readings([item]), width=200)
    assert "drew 75.0 W and had not settled" in text and "Energy tax" not in text


@pytest.mark.parametrize(
    ("joules", "text"),
    [(12.345, "12.3 J"), (0.4567, "457 mJ"), (7.89e-5, "78.9 uJ"), (-0.02, "-20 mJ"), (0, "0 uJ")],
)
def test_joules_keep_three_digits(joules, text):
    assert format_joules(joules) == text


@pytest.mark.parametrize(
    ("count", "text"), [(1500, "1.46 KiB"), (5 * 2**20, "5 MiB"), (2**40, "1,024 GiB")]
)
def test_bytes_have_binary_units(count, text):
    assert format_bytes(count) == text
