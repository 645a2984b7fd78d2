"""Shared libraries as runtimes: timed in the loop if they come through their trial, and a reason in
one line if not."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import ftax
from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError, UnavailableError, UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.plugins.case import PluginCase, TriedLibrary, collect_weights, make_case
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.steps.tensors import same_bytes
from ftax.timing.plan import Plan
from support.plugins import THROWING, VERSION_1, compile_c, compile_cpp, compile_text
from support.small_models import normal

QUICK = Plan(rounds=3, warmup=5, round_ms=1.0)


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
        ("new-version", "version 3 of the runner interface"),
        ("prepare-fails", "prepare failed with status 1"),
        ("no-device", "FTAX_RUNS_ON_CPU"),
        ("crashes-in-create", "create: the worker process was ended by SIGABRT"),
        ("crashes-in-enqueue", "enqueue: the worker process was ended by SIGSEGV"),
        ("exits", "enqueue: the worker process ended with exit code 7"),
        ("hangs", "enqueue: the worker process ran past 3 s"),
        ("writes-nothing", "garbage on the model's inputs"),
    ],
)
def test_bad_library_costs_only_its_own_row(
    fault: str, reason: str, mlp: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTAX_PREPARE_SECONDS", "3" if fault == "hangs" else "15")
    receipt = ftax.tax(mlp, runtimes=[compile_c(tmp_path, fault)], plan=QUICK, operators=False)
    assert len(receipt.rungs) == 3
    assert receipt.others == ()
    found = [item.reason for item in receipt.unavailable if fault in item.runtime]
    assert len(found) == 1 and reason in found[0] and f"{fault}.so" in found[0]


def test_inexact_library_is_timed_and_marked(mlp: LoadedModel, tmp_path: Path) -> None:
    measurement = ftax.cpp_bench(mlp, runtime=compile_c(tmp_path, "inexact"), plan=QUICK)
    assert not measurement.checks["outputs"]["within_tolerance"]


def test_library_that_stops_computing_while_it_is_timed_is_marked(
    mlp: LoadedModel, tmp_path: Path
) -> None:
    receipt = ftax.tax(mlp, runtimes=[compile_c(tmp_path, "stops")], plan=QUICK, operators=False)
    row = next(row for row in receipt.runtimes if "stops" in row.label)
    assert "after the rounds" in row.outputs and row.excluded
    assert "stops" not in receipt.recommendation.partition("not recommended")[0]


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


def test_library_of_version_1_is_refused_with_the_remedy(tmp_path: Path) -> None:
    remedy = "library.so was built for version 1 .* speaks version 2; build it with the header"
    with pytest.raises(UnsupportedError, match=remedy):
        _core.open_plugin(compile_text(tmp_path, VERSION_1))


@pytest.mark.parametrize("form", ["short-table", "long-table"])
def test_table_of_another_length_is_timed(form: str, mlp: LoadedModel, tmp_path: Path) -> None:
    measurement = ftax.cpp_bench(mlp, runtime=compile_c(tmp_path, form), plan=QUICK)
    assert measurement.checks["outputs"]["within_tolerance"]
    assert measurement.preparation["has_prepare"] is False


def test_library_is_told_who_asks(tmp_path: Path) -> None:
    told = _core.open_plugin(
        compile_text(
            tmp_path,
            """
            #include <stdio.h>
            #include "ftax/runner.h"
            static char told[99];
            static int32_t create(const char* config, const ftax_context* c, ftax_runner** r) {
              snprintf(told, sizeof told, "%u of %u, table of %u, on %d:%d with %d", c->abi_version,
                       c->struct_size, c->api_size, c->device_type, c->device_index, c->threads);
              return FTAX_ERROR;
            }
            static const char* last_error(const ftax_runner* runner) { return told; }
            const ftax_runner_api* ftax_get_runner_api(void) {
              static const ftax_runner_api api = {
                  FTAX_RUNNER_ABI_VERSION, sizeof api, FTAX_RUNS_ON_CPU, "asks", create,
                  (void*)1, (void*)1, (void*)1, last_error};
              return &api;
            }
            """,
        )
    )
    with pytest.raises(RunnerError, match=r"2 of 24, table of 80, on 0:0 with 3$"):
        _core.Plugin(told, "", "cpu", 3)
    with pytest.raises(UnsupportedError, match=r"device is 'meta:0', which ftax/runner.h has no"):
        _core.Plugin(told, "", "meta", 3)


def read_calls(library: str) -> str:
    """What the form "journal" of the library wrote down in this process."""
    read = ctypes.CDLL(library).read_calls
    read.restype = ctypes.c_char_p
    found: bytes = read()
    return found.decode()


def time_journal(mlp: LoadedModel, library: str, device: str) -> float:
    """The least time of an inference, in ns, with a runner that thinks it runs on ``device``."""
    bound = TriedLibrary(path=library, config="", case=make_case(mlp)).bind()
    runner = _core.PluginRunner(bound.plugin, "journal", device, memory_owner=bound)
    assert runner.needs_prepare
    result = _core.measure_rounds([runner], QUICK.to_core())
    assert [rounds.error for rounds in result.runners] == [""]
    return min(result.runners[0].values_ns)


def test_on_the_cpu_the_library_waits_and_that_is_timed_but_prepare_is_not(
    mlp: LoadedModel, tmp_path: Path
) -> None:
    library = compile_c(tmp_path, "journal")
    least_ns = time_journal(mlp, library, "cpu")
    assert 2e6 <= least_ns < 20e6
    calls = read_calls(library)
    assert len(calls) > 8 and calls == "pses" * (len(calls) // 4)


def test_on_another_device_ftax_waits_and_the_library_is_not_asked_to(
    mlp: LoadedModel, tmp_path: Path
) -> None:
    # Of all devices that are not the CPU, torch has this one on every machine; it is always idle.
    library = compile_c(tmp_path, "journal")
    assert time_journal(mlp, library, "meta") < 2e6
    calls = read_calls(library)
    assert len(calls) > 8 and calls == "pe" * (len(calls) // 2)


def test_library_with_state_is_prepared_before_every_inference(
    mlp: LoadedModel, tmp_path: Path
) -> None:
    library = compile_c(tmp_path, "has-state")
    measurement = ftax.cpp_bench(mlp, runtime=library, plan=QUICK)
    assert measurement.checks["outputs"]["within_tolerance"]
    assert measurement.preparation["has_prepare"] is True
    prepared = find_runtime(library).prepare(Workspace(mlp), "cpp")
    for _ in range(3):
        prepared.runner.run_once()
        prepared.run()


def test_library_that_is_prepared_has_no_throughput(mlp: LoadedModel, tmp_path: Path) -> None:
    library = compile_c(tmp_path, "has-state")
    plan = dataclasses.replace(QUICK, mode="throughput")
    with pytest.raises(InvalidArgumentError, match="has to be prepared before each request"):
        ftax.cpp_bench(mlp, runtime=library, plan=plan)


def test_receipt_has_the_throughput_of_the_others(mlp: LoadedModel, tmp_path: Path) -> None:
    library = compile_c(tmp_path, "has-state")
    receipt = ftax.tax(mlp, runtimes=[library], plan=QUICK, operators=False, throughput=True)
    assert [m.cell.runtime for m in receipt.others] == [library]
    rungs = [(m.cell.runtime, m.cell.host) for m in receipt.rungs]
    assert [(m.cell.runtime, m.cell.host) for m in receipt.throughputs] == rungs
    (said,) = [text for text in receipt.warnings if "throughput" in text]
    assert library in said and "prepared before each request" in said


def test_prepare_that_throws_is_an_error_and_no_crash(tmp_path: Path, mlp: LoadedModel) -> None:
    library = compile_cpp(tmp_path, THROWING)
    plugin = TriedLibrary(path=library, config="prepare", case=make_case(mlp)).create()
    runner = _core.PluginRunner(plugin, "throws", "cpu")
    with pytest.raises(RunnerError, match=r"prepare threw a C\+\+ exception \(no way back\)"):
        runner.run_once()


def test_library_that_changed_is_not_opened_again(library: str) -> None:
    opened = _core.open_plugin(library)
    assert _core.open_plugin(library) is not None and opened.name == "mlp-in-c"
    os.utime(library, ns=(1, 1))
    with pytest.raises(InvalidArgumentError, match="has changed since this process opened it"):
        _core.open_plugin(library)


def test_runner_reports_what_enqueue_refuses(mlp: LoadedModel, library: str) -> None:
    plugin = TriedLibrary(path=library, config="", case=make_case(mlp)).create()
    runner = _core.PluginRunner(plugin, "unbound", "cpu")
    with pytest.raises(RunnerError, match=r"enqueue failed with status 1: first.weight"):
        runner.run_once()
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
