"""Exports against torch's own outputs, both exporters, silence, and what a failure says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

import ftax
from ftax.errors import UnavailableError, UnsupportedError
from ftax.runtimes.compilers.flattened import Flattened
from ftax.runtimes.onnx import export as exporting
from ftax.runtimes.onnx.export import EXPORTERS, Exporter, export_onnx
from support.onnx_models import make_runner

pytestmark = pytest.mark.needs_ort


class Branching(nn.Module):
    """Which way it goes depends on a value: a trace follows one way, torch.export refuses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Differing(nn.Module):
    """The TorchScript exporter has no torch.diff."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.diff(x)


class Hopeless(nn.Module):
    """ONNX has no such operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).real


class Nested(nn.Module):
    """Dicts in, dicts and lists out, and one argument that is no tensor."""

    def forward(
        self, pair: dict[str, torch.Tensor], *, scale: float
    ) -> dict[str, list[torch.Tensor]]:
        return {"sums": [pair["a"] + pair["b"]], "scaled": [pair["a"] * scale]}


def run_file(path: Path, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    runner, outputs = make_runner(path, inputs)
    for output in outputs:
        output.fill_(0)
    runner.run_once()
    return outputs


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_nested_arguments_and_results_become_numbered_tensors(
    tmp_path: Path, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "EXPORTERS", (exporter,))
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    loaded = ftax.load_model(Nested(), inputs=(({"a": a, "b": b},), {"scale": 3.0}))
    path = tmp_path / "nested.onnx"
    export = export_onnx(Flattened(loaded), loaded.flat_inputs(), path)
    assert export.exporter == exporter
    assert export.fallback_reason is None
    assert export.opset >= 18
    sums, scaled = run_file(path, [a, b])
    assert sums.tolist() == [11.0, 22.0]
    assert scaled.tolist() == [3.0, 6.0]


def test_exporting_without_its_packages_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="pip install onnx onnxscript"):
        export_onnx(Differing(), [torch.zeros(2)], tmp_path / "never-written.onnx")


@pytest.mark.slow
def test_the_other_exporter_steps_in_and_the_result_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.tensor([1.0, 4.0, 9.0])
    branching = export_onnx(Branching(), [x], tmp_path / "branching.onnx")
    said = " ".join(branching.messages)
    if torch.__version__ < "2.9":  # it drafts what it cannot export, and says so
        assert branching.exporter == "dynamo"
        assert "sum_1 > 0" in said  # the graph as far as the branch
    else:
        assert branching.exporter == "torchscript"
        assert "data-dependent" in (branching.fallback_reason or "")
        assert "TracerWarning" in said
    assert [t.tolist() for t in run_file(tmp_path / "branching.onnx", [x])] == [[2.0, 5.0, 10.0]]

    monkeypatch.setattr(exporting, "EXPORTERS", EXPORTERS[::-1])
    differing = export_onnx(Differing(), [x], tmp_path / "differing.onnx")
    assert differing.exporter == "dynamo"
    assert "aten::diff" in (differing.fallback_reason or "")
    assert [t.tolist() for t in run_file(tmp_path / "differing.onnx", [x])] == [[3.0, 5.0]]
    # The exporters warn, log and print; pytest would also fail on a warning.
    assert capfd.readouterr() == ("", "")


def test_what_nobody_can_export_gives_both_reasons_and_leaves_no_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hopeless.onnx"
    with pytest.raises(
        UnsupportedError, match=r"Hopeless.*dynamo: .*linalg_eig.*; torchscript: .*eigvals"
    ):
        export_onnx(Hopeless(), [torch.eye(2)], path)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-base", "gpt2", "resnet-50"])
def test_zoo_models_agree_with_torch(tmp_path: Path, name: str) -> None:
    """Tolerance: 1e-4 of the largest value, on inputs that the export did not see."""
    loaded = ftax.load_model(name, tiny=True)
    path = tmp_path / "model.onnx"
    export = export_onnx(Flattened(loaded), loaded.flat_inputs(), path)
    assert export.exporter == "dynamo"
    with torch.inference_mode():
        expected = Flattened(loaded)(*loaded.flat_check_inputs())
    outputs = run_file(path, loaded.flat_check_inputs())
    for output, reference in zip(outputs, expected, strict=True):
        tolerance = 1e-4 * float(reference.abs().max())
        torch.testing.assert_close(output, reference, rtol=0, atol=tolerance)
