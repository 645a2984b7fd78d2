"""Shared libraries as runtimes: timed in the loop if they come through their trial, and a reason in
one line if not."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest
import torch
from plugins import compile_c
from small_models import normal
from torch import nn

import ftax
from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError, UnavailableError, UnsupportedError
from ftax.measure import Plan
from ftax.models import LoadedModel
from ftax.runtimes import Workspace, find_runtime
from ftax.runtimes.plugin_case import PluginCase, Subject, collect_weights, make_case
from ftax.tensors import same_bytes

QUICK = Plan(rounds=3, warmup=5)


@pytest.fixture
def library(tmp_path: Path) -> str:
    return compile_c(tmp_path)


def test_library_is_timed_in_the_loop(mlp: LoadedModel, library: str) -> None:
    measurement = ftax.cpp_bench(mlp, runtime=library, plan=QUICK)
    assert (measurement.cell.runtime, measurement.cell.host) == (library, "cpp")
    assert measurement.latency_ns > 0
    for check in ("outputs", "second_input"):
        assert measurement.checks[check]["within_tolerance"]
    assert measurement.preparation["library_name"] == "mlp-in-c"
    assert len(str(measurement.preparation["library_digest"])) == 32


def test_library_is_a_row_of_a_receipt(mlp: LoadedModel, library: str) -> None:
    receipt = ftax.tax(mlp, runtimes=[library], plan=QUICK, operators=False)
    assert [m.cell.runtime for m in receipt.others] == [library]


def test_runs_on_the_inputs_that_the_model_has(mlp: LoadedModel, library: str) -> None:
    prepared = find_runtime(library).prepare(Workspace(mlp), "cpp")
    assert torch.allclose(prepared.run()[0], mlp.module(*mlp.args), rtol=1e-5, atol=1e-6)
    assert (prepared.runner.host, prepared.runner.needs_gil) == ("cpp", False)


def test_config_comes_after_a_question_mark(mlp: LoadedModel, library: str) -> None:
    with pytest.raises(UnsupportedError, match="there are no options, got 'fast=1'"):
        ftax.cpp_bench(mlp, runtime=f"{library}?fast=1")


def test_library_has_no_python_host(mlp: LoadedModel, library: str) -> None:
    with pytest.raises(UnavailableError, match="give host cpp"):
        ftax.py_bench(mlp, runtime=library)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong-version", "version 2 of the runner interface"),
        ("no-device", "FTAX_RUNS_ON_CPU"),
        ("crashes-in-create", "create: the process was ended by SIGABRT"),
        ("crashes-in-enqueue", "enqueue: the process was ended by SIGSEGV"),
        ("exits", "enqueue: the process ended with exit code 7"),
        ("hangs", "enqueue: ran past 15 s"),
        ("writes-nothing", "garbage for input set 0"),
    ],
)
def test_bad_library_costs_only_its_own_row(
    fault: str, reason: str, mlp: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTAX_PREPARE_SECONDS", "15")
    receipt = ftax.tax(mlp, runtimes=[compile_c(tmp_path, fault)], plan=QUICK, operators=False)
    assert len(receipt.rungs) == 3
    assert receipt.others == ()
    found = [item.reason for item in receipt.unavailable if fault in item.runtime]
    assert len(found) == 1 and reason in found[0] and f"{fault}.so" in found[0]


def test_inexact_library_is_timed_and_marked(mlp: LoadedModel, tmp_path: Path) -> None:
    measurement = ftax.cpp_bench(mlp, runtime=compile_c(tmp_path, "inexact"), plan=QUICK)
    assert not measurement.checks["outputs"]["within_tolerance"]


def test_library_that_cannot_run_the_model_says_why(library: str) -> None:
    three = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with pytest.raises(UnsupportedError, match=r'bind\("0.weight"\) failed.*no such tensor'):
        ftax.cpp_bench(three, normal(2, 4), runtime=library)


def test_paths_are_checked(mlp: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="there is no library"):
        ftax.cpp_bench(mlp, runtime=str(tmp_path / "missing.so"))
    other = tmp_path / "text.so"
    other.write_text("no library")
    with pytest.raises(UnsupportedError, match=r"text.so could not be loaded"):
        ftax.cpp_bench(mlp, runtime=str(other))
    with pytest.raises(InvalidArgumentError, match="there is no runtime 'eagre'"):
        find_runtime("eagre")


def test_time_limit_is_checked(
    mlp: LoadedModel, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTAX_PREPARE_SECONDS", "soon")
    with pytest.raises(InvalidArgumentError, match="FTAX_PREPARE_SECONDS is 'soon'"):
        ftax.cpp_bench(mlp, runtime=library)


def test_library_without_the_symbol(tmp_path: Path) -> None:
    source = tmp_path / "empty.c"
    source.write_text("int nothing;")
    path = tmp_path / "empty.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    with pytest.raises(UnsupportedError, match="does not export ftax_get_runner_api"):
        _core.open_plugin(str(path))


def test_library_that_changed_is_not_opened_again(library: str) -> None:
    opened = _core.open_plugin(library)
    assert _core.open_plugin(library) is not None and opened.name == "mlp-in-c"
    os.utime(library, ns=(1, 1))
    with pytest.raises(InvalidArgumentError, match="has changed since this process opened it"):
        _core.open_plugin(library)


def test_runner_reports_what_enqueue_refuses(mlp: LoadedModel, library: str) -> None:
    plugin = Subject(path=library, config="", case=make_case(mlp)).create()
    runner = _core.PluginRunner(plugin, "unbound")
    with pytest.raises(RunnerError, match=r"enqueue failed with status 1: first.weight"):
        runner.run_once()
    with pytest.raises(UnavailableError, match="allocations are not counted"):
        plugin.count_allocations(0, 1)
    with pytest.raises(UnsupportedError, match="dtype is 'complex64'"):
        plugin.bind("input", "input0", 0, [1], "complex64")


def test_case_survives_a_file(nest: LoadedModel, tmp_path: Path) -> None:
    case = make_case(nest)
    case.save(tmp_path / "case.pt")
    read = PluginCase.load(tmp_path / "case.pt")
    for field in dataclasses.fields(PluginCase):
        if field.name not in ("weights", "inputs", "references"):
            assert getattr(read, field.name) == getattr(case, field.name)
    for ours, theirs in zip((*case.inputs, *case.references), (*read.inputs, *read.references)):
        assert all(same_bytes(a, b) for a, b in zip(ours, theirs, strict=True))


def test_weights_have_all_names_and_are_contiguous() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Parameter(torch.ones(2, 3).t())
            self.two = self.one
            self.register_buffer("kept", torch.zeros(2))
            self.register_buffer("left_out", torch.zeros(3), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.one

    weights = collect_weights(ftax.load_model(Tied(), inputs=normal(2, 3)))
    assert set(weights) == {"one", "two", "kept", "left_out"}
    assert all(tensor.is_contiguous() for tensor in weights.values())


def test_header_is_where_get_include_says() -> None:
    header = Path(ftax.get_include()) / "ftax" / "runner.h"
    assert f"FTAX_RUNNER_ABI_VERSION {_core.RUNNER_ABI_VERSION}u" in header.read_text()


@pytest.mark.parametrize("compiler", [("cc", "-std=c99", "-xc"), ("c++", "-std=c++11", "-xc++")])
def test_header_is_clean_c_and_cpp(compiler: tuple[str, ...], tmp_path: Path) -> None:
    header = Path(ftax.get_include()) / "ftax" / "runner.h"
    options = ("-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-include", str(header))
    empty = tmp_path / "empty"
    empty.write_text("typedef int translation_unit;\n")
    compiled = subprocess.run(
        [*compiler, *options, str(empty)], capture_output=True, text=True, check=False
    )
    assert (compiled.returncode, compiled.stderr) == (0, "")
