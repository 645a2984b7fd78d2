"""Each check of `ftax conform` passes the example and fails a library made for it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import ftax
from ftax.cli.commands import app
from ftax.cli.ending import run
from ftax.errors import InvalidArgumentError, UnavailableError
from ftax.runtimes.plugins import conform as suite_module
from ftax.runtimes.plugins.case import PluginCase, make_case
from ftax.runtimes.plugins.conform import CHECKS, Check, Conformance, Finding
from ftax.runtimes.plugins.trial import TASK, Answer, open_session
from ftax.workers import process as process_module
from ftax.workers.process import Worker
from support.plugins import THROWING, compile_c, compile_cpp

CPU_CHECKS = [check for check in CHECKS if "cpu" in check.devices]

# The check that has to fail, what is wrong with the library, and a word of the reason.
FAILURES = [
    ("interface version", "new-version", "for version 3 .* speaks version 2"),
    ("interface version", "too-short-table", "has struct_size 56, .* takes 64"),
    ("interface version", "half-a-function", "struct_size 68, .* in whole functions"),
    ("interface version", "null-function", "`bind` of its table is null"),
    ("interface version", "no-device", "FTAX_RUNS_ON_CPU"),
    ("refuses an unknown config", "ignores-config", "was accepted"),
    ("refuses an unknown config", "no-reason", "no reason"),
    ("outputs equal eager's", "crashes-in-create", "create: .*SIGABRT"),
    ("outputs equal eager's", "crashes-in-enqueue", "enqueue: .*SIGSEGV"),
    ("outputs equal eager's", "exits", "enqueue: .*exit code 7"),
    ("outputs equal eager's", "hangs", "enqueue: .*ran past"),
    ("outputs equal eager's", "writes-nothing", "on the model's inputs: outputs differ"),
    ("outputs equal eager's", "inexact", "on the model's inputs: outputs differ"),
    ("outputs equal eager's", "prepare-fails", "prepare failed with status 1: .*cannot go back"),
    ("outputs equal eager's", "synchronize-fails", "synchronize failed .*no end in sight"),
    ("prepare is no inference", "prepare-computes", "prepare wrote outputs"),
    ("prepare is no inference", "keeps-inputs", "outputs differ"),
]  # fmt: skip


# These take their process with them.
FATAL = ("crashes-in-create", "crashes-in-enqueue", "exits", "hangs")
MODULE = "ftax.runtimes.plugins.conform"


@pytest.fixture(scope="module")
def case() -> PluginCase:
    return make_case(suite_module.make_perceptron())


def run_check(library: str, check: str, case: PluginCase, limit_s: float = 60.0) -> Answer:
    with open_session(library, "", case) as session:
        found = next(item for item in CHECKS if item.name == check)
        return suite_module._run(session, found, case.device, limit_s)


class SharedWorker:
    """One process for all checks that leave it as they found it."""

    def __init__(self, case: PluginCase) -> None:
        self._case = case
        self._worker: Worker | None = None

    def ask(self, library: str, check: str) -> Answer:
        with open_session(library, "", self._case) as session:
            self._worker = self._worker or Worker(TASK)
            self._worker.send(session.make_job(find_function(check)))
            answer = session.read(self._worker.listen(60.0))
        if "the worker process" in answer.reason:
            self.end()
        return answer

    def end(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None


@pytest.fixture(scope="module")
def shared(case: PluginCase) -> Iterator[SharedWorker]:
    worker = SharedWorker(case)
    yield worker
    worker.end()


def find_function(check: str) -> str:
    return next(f"{MODULE}:{item.function}" for item in CHECKS if item.name == check)


def test_example_passes(case: PluginCase, tmp_path: Path) -> None:
    """Each check in its own process, as the command has it."""
    found = ftax.conform(compile_c(tmp_path))
    answers = {item.name: item.status for item in found.findings}
    assert found.conforms and len(found.findings) == len(CHECKS)
    assert {name for name, status in answers.items() if status == "skipped"} == {
        "prepare is no inference",
        *(check.name for check in CHECKS if "cpu" not in check.devices),
    }


@pytest.mark.parametrize("check", CPU_CHECKS, ids=lambda check: check.name)
def test_library_that_has_to_be_prepared_passes(
    check: Check, shared: SharedWorker, tmp_path: Path
) -> None:
    answer = shared.ask(compile_c(tmp_path, "has-state"), check.name)
    assert answer.status == "passed", answer.reason


@pytest.mark.parametrize("form", ["short-table", "long-table"])
@pytest.mark.parametrize("check", ["interface version", "outputs equal eager's"])
def test_table_of_another_length_passes(
    form: str, check: str, shared: SharedWorker, tmp_path: Path
) -> None:
    answer = shared.ask(compile_c(tmp_path, form), check)
    assert answer.status == "passed", answer.reason


@pytest.mark.parametrize(
    ("check", "fault", "reason"), [item for item in FAILURES if item[1] not in FATAL]
)
def test_check_can_fail(
    check: str, fault: str, reason: str, shared: SharedWorker, tmp_path: Path
) -> None:
    answer = shared.ask(compile_c(tmp_path, fault), check)
    assert answer.status == "failed"
    assert re.search(reason, answer.reason), answer.reason


@pytest.mark.parametrize(
    ("check", "fault", "reason"), [item for item in FAILURES if item[1] in FATAL]
)
def test_check_can_fail_with_its_process(
    check: str, fault: str, reason: str, case: PluginCase, tmp_path: Path
) -> None:
    answer = run_check(compile_c(tmp_path, fault), check, case, 3.0 if fault == "hangs" else 60.0)
    assert answer.status == "failed"
    assert re.search(reason, answer.reason), answer.reason


def test_every_cpu_check_is_seen_to_fail() -> None:
    assert {check.name for check in CPU_CHECKS} == {check for check, _, _ in FAILURES}


def test_exception_that_is_let_out_is_a_failure_and_no_crash(
    shared: SharedWorker, tmp_path: Path
) -> None:
    library = compile_cpp(tmp_path, THROWING)
    answer = shared.ask(library, "refuses an unknown config")
    assert (answer.status, "threw a C++ exception (no such config)" in answer.reason) == (
        "failed", True,
    )  # fmt: skip


def test_report_lists_all_checks_and_skips_those_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    picked = tuple(check for check in CHECKS if check.name in ("interface version",)) + tuple(
        check for check in CHECKS if "cpu" not in check.devices
    )
    monkeypatch.setattr(suite_module, "CHECKS", picked)
    found = ftax.conform(compile_c(tmp_path))
    assert [finding.status for finding in found.findings] == ["passed"] + ["skipped"] * 3
    assert found.conforms
    assert Conformance.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_failure_does_not_conform() -> None:
    failed = Finding(name="x", status="failed", reason="because")
    found = Conformance(plugin="l", config="", model="m", device="cpu", findings=(failed,))
    assert not found.conforms


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="there is no library"):
        ftax.conform(tmp_path / "missing.so")
    with pytest.raises(InvalidArgumentError, match="limit_s"):
        ftax.conform(tmp_path / "missing.so", limit_s=0)
    with pytest.raises(InvalidArgumentError, match=r"batch is given without a model.*--model"):
        ftax.conform(tmp_path / "missing.so", batch=2)
    with pytest.raises(InvalidArgumentError, match="inputs is given without a model"):
        ftax.conform(tmp_path / "missing.so", inputs=torch.ones(1))


def test_time_spent_in_a_queue_for_a_cpu_is_not_the_librarys(
    monkeypatch: pytest.MonkeyPatch, case: PluginCase, tmp_path: Path
) -> None:
    library = compile_c(tmp_path, "slow-to-create")
    assert (
        "create: the worker process ran past 1 s"
        in run_check(library, "outputs equal eager's", case, 1.0).reason
    )
    born = time.monotonic()
    monkeypatch.setattr(process_module, "_read_queued_s", lambda pid: time.monotonic() - born)
    answer = run_check(library, "outputs equal eager's", case, 1.0)
    assert answer.status == "passed", answer.reason


def test_a_process_that_never_gets_as_far_as_the_library_is_not_its_fault(
    monkeypatch: pytest.MonkeyPatch, case: PluginCase, tmp_path: Path
) -> None:
    monkeypatch.setattr(process_module, "_START_S", 0.0)
    with pytest.raises(UnavailableError, match=r"good\.so was not tried: .* not ready after 0 s"):
        run_check(compile_c(tmp_path), "interface version", case)


def test_a_library_for_another_model_is_told_what_it_was_tried_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(suite_module, "CHECKS", CHECKS[:1])
    code = run(app, ["conform", compile_c(tmp_path, "new-version")])
    said = capsys.readouterr().err
    assert code == 1
    assert "new-version.so was tried on a perceptron" in said
    assert "first.weight (64, 32)" in said and "input0 (4, 32), output0 (4, 16)" in said
    assert "use --model" in said
    assert run(app, ["conform", compile_c(tmp_path)]) == 0
    assert "use --model" not in capsys.readouterr().err


def test_findings_print_as_a_table() -> None:
    failed = Finding(name="outputs equal eager's", status="failed", reason="because")
    found = Conformance(plugin="l.so", config="", model="m", device="cpu", findings=(failed,))
    assert "l.so on m, cpu: 0 passed, 1 failed, 0 skipped" in " ".join(str(found).split())
    assert "because" in str(found)


def test_command_answers_with_an_exit_code_and_a_record(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(suite_module, "CHECKS", CHECKS[:2])
    record = tmp_path / "record.jsonl"
    library = compile_c(tmp_path, "new-version")
    assert run(app, ["conform", library, "--csv", "--json", str(record)]) == 1
    assert "build it with the header of this ftax" in capsys.readouterr().out
    (found,) = ftax.read_records(record).records
    assert not found.conforms
    assert len(found.findings) == 2
