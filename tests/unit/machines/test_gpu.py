"""The GPU's part of the environment: a pretended NVML, and the real one where there is a GPU."""

import sys

import pytest
import torch

from ftax.errors import InvalidArgumentError, UnavailableError
from ftax.machines.environment import Environment, collect_environment
from ftax.machines.gpu import collect_gpu
from support.fake_nvml import FakeNvml, NVMLError, pretend_cuda


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "CPU", ""])
def test_a_device_that_is_none_is_refused(device):
    with pytest.raises(InvalidArgumentError, match=f"device is '{device}'"):
        collect_environment(device=device)


def test_a_device_that_torch_does_not_see_is_unavailable(monkeypatch):
    pretend_cuda(monkeypatch, 0)
    with pytest.raises(UnavailableError, match="torch sees 0 CUDA devices"):
        collect_gpu("cuda")
    pretend_cuda(monkeypatch, 2)
    with pytest.raises(UnavailableError, match="'cuda:2' but torch sees 2"):
        collect_gpu("cuda:2")


def test_a_gpu_is_found_by_uuid_and_unsupported_questions_are_unknowns(monkeypatch):
    pretend_cuda(monkeypatch, 1)
    nvml = FakeNvml(
        nvmlDeviceGetClockInfo=lambda handle, clock: {1: 1980, 2: 3201}[clock],
        nvmlDeviceGetMigMode=[0, 1],
    )
    gpu = collect_gpu("cuda", nvml=nvml)
    assert (gpu.name, gpu.driver, gpu.memory_bytes) == ("Fictional GPU", "999.1", 2**37)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz) == (1980, 3201)
    assert (gpu.mig, gpu.persistence_mode, gpu.power_mw) == (False, None, None)
    assert nvml.open == 0


def test_a_failing_nvml_is_an_error_and_a_missing_one_an_unknown(monkeypatch):
    pretend_cuda(monkeypatch, 1)
    nvml = FakeNvml()

    def fail():
        raise NVMLError("Driver Not Loaded")

    nvml.nvmlInit = fail
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(UnavailableError, match="Driver Not Loaded; check that nvidia-smi works"):
        collect_gpu("cuda")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert collect_gpu("cuda") is None


@pytest.mark.needs_cuda
def test_the_gpu_is_the_one_that_torch_uses():
    pytest.importorskip("pynvml")
    environment = collect_environment(device="cuda")
    assert environment.gpu.name == torch.cuda.get_device_name(0)
    total = torch.cuda.get_device_properties(0).total_memory
    assert environment.gpu.memory_bytes == pytest.approx(total, rel=0.05)
    assert Environment.from_dict(environment.to_dict()) == environment
