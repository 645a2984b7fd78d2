"""Copies from and to host memory: what is copied, and that the request reads it."""

from __future__ import annotations

from typing import cast

import pytest
import torch

import ftax
from ftax.instruments.trace.tracer import trace_prepared
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.setting import Setting
from ftax.tape.capture import enter_stream
from ftax.tape.equality import compare_outputs
from ftax.timing.candidate import Candidate, Host

pytestmark = pytest.mark.needs_cuda
ROWS: list[tuple[str, Host]] = [
    ("eager", "python"),
    ("eager", "cpp"),
    ("cuda-graph", "python"),
    ("cuda-graph", "cpp"),
]


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    loaded = ftax.load_model("bert-base", tiny=True, device="cuda")
    return Workspace(loaded.run_as(Setting(transfers=True)))


def prepare(workspace: Workspace, name: str, host: Host) -> Candidate:
    return find_runtime(name).prepare(workspace, host)


@pytest.mark.parametrize(("name", "host"), ROWS)
def test_each_request_copies_all_inputs_and_outputs(
    workspace: Workspace, name: str, host: Host
) -> None:
    prepared = prepare(workspace, name, host)
    facts = cast(dict[str, int], prepared.preparation.details["transfers"])
    assert facts["input_bytes"] == sum(t.nbytes for t in workspace.loaded.flat_inputs())
    assert facts["output_bytes"] == sum(t.nbytes for t in workspace.reference)
    assert prepared.options["transfers"] is True
    iterations = 4
    trace = trace_prepared(workspace.loaded, prepared, iterations=iterations)
    for kind, key in (("HtoD", "input_bytes"), ("DtoH", "output_bytes")):
        copied = sum(copy.bytes for copy in trace.memcpys if copy.copy_kind == kind)
        assert copied == iterations * facts[key]
    assert len({item.stream_id for item in (*trace.kernels, *trace.memcpys)}) == 1


@pytest.mark.parametrize("host", ["python", "cpp"])
def test_a_request_reads_the_input_that_was_copied(workspace: Workspace, host: Host) -> None:
    prepared = prepare(workspace, "cuda-graph", host)
    buffers = prepared.buffers
    assert buffers is not None
    with torch.inference_mode(), enter_stream(workspace.stream):
        for tensor in buffers.inputs:
            tensor.zero_()
        for tensor in buffers.outputs:
            tensor.fill_(float("nan"))
    prepared.runner.run_once()
    assert compare_outputs(workspace.reference, buffers.outputs).within_tolerance
