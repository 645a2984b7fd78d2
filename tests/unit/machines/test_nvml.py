"""Asking NVML: what is a refusal, what an error, and that the real package knows our questions."""

import re
import sys
from pathlib import Path

import pytest

import ftax
from ftax.errors import UnavailableError
from ftax.machines.nvml import open_gpu
from support.fake_nvml import (
    FakeNvml,
    FunctionNotFoundError,
    NoPermissionError,
    NotSupportedError,
    NVMLError,
    open_fake,
    pretend_cuda,
)

POWER = "nvmlDeviceGetPowerUsage"


@pytest.mark.parametrize(
    "refusal", [NotSupportedError("no"), NoPermissionError("no"), FunctionNotFoundError("no")]
)
def test_a_refused_question_is_an_unknown_unless_the_answer_is_needed(refusal):
    gpu = open_fake(**{POWER: refusal})
    assert gpu.ask(POWER) is None
    with pytest.raises(UnavailableError, match=f"not available here: {POWER} of 'cuda' .*'no'"):
        gpu.require(POWER)


def test_any_other_failure_is_an_error():
    gpu = open_fake(**{POWER: NVMLError("GPU is lost")})
    with pytest.raises(UnavailableError, match=f"{POWER} of 'cuda' fails with 'GPU is lost'"):
        gpu.ask(POWER)


def test_nvml_is_shut_down_whatever_happens_inside(monkeypatch):
    pretend_cuda(monkeypatch, 1)
    nvml = FakeNvml()

    def use():
        with open_gpu("cuda", nvml=nvml):
            assert nvml.open == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert nvml.open == 0


def test_a_gpu_that_nvml_does_not_find_is_unavailable(monkeypatch):
    pretend_cuda(monkeypatch, 1)
    monkeypatch.setattr("support.fake_nvml.UUID", "another")
    nvml = FakeNvml()
    with pytest.raises(UnavailableError, match="Not Found"), open_gpu("cuda", nvml=nvml):
        pass
    assert nvml.open == 0


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    pretend_cuda(monkeypatch, 1)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UnavailableError, match="pip install nvidia-ml-py"), open_gpu("cuda"):
        pass


def test_the_real_package_has_every_name_that_ftax_uses():
    pynvml = pytest.importorskip("pynvml")
    root = Path(ftax.__file__).parent
    sources = [*root.glob("machines/*.py"), *root.glob("instruments/*.py")]
    pattern = re.compile(r"nvml\.(\w+)|\"(nvml\w+)\"")
    names = {
        name
        for source in sources
        for groups in pattern.findall(source.read_text(encoding="utf-8"))
        for name in groups
        if re.match(r"nvml[A-Z]|NVML|c_nvml", name)
    }
    assert len(names) > 20
    assert {name for name in names if not hasattr(pynvml, name)} == set()
