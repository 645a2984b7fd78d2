"""All readings of several runtimes: what cannot be had is None and has its reason."""

import functools
import sys

import pytest
import torch

from delays import spin
from ftax import _core
from ftax.errors import InvalidArgumentError, UnavailableError
from ftax.instruments import readings as module
from ftax.instruments.energy import IdlePower
from ftax.instruments.readings import (
    GpuReadings,
    PeakMemory,
    collect_gpu_readings,
    measure_peak_memory,
)
from ftax.timing.candidate import Candidate
from support.fake_nvml import FakeNvml, pretend_cuda

COUNTER = "nvmlDeviceGetTotalEnergyConsumption"
MEMORY = PeakMemory(held_bytes=1, allocated_bytes=2, reserved_bytes=3, device_bytes=4)
IDLE = IdlePower(power_w=50.0, seconds=1.0, settled=True, resolution_ratio=0.005, sm_clock_mhz=None)


@pytest.fixture
def memory(monkeypatch):
    """Pretends a GPU whose memory can be read; a test may put an error into the list."""
    pretend_cuda(monkeypatch, 1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    errors = []

    def measure(function, *, device):
        if errors:
            raise errors[0]
        return MEMORY

    monkeypatch.setattr(module, "measure_peak_memory", measure)
    return errors


def prepare(callable_=lambda: spin(100_000)):
    runner = _core.PythonRunner(callable_, "spin", device="cpu", grad_mode=_core.GradMode.inference)
    return Candidate(runtime="eager", host="python", runner=runner, run=lambda: [])


def collect(items, **options):
    """What is known of each in the end."""
    return [*collect_gpu_readings(items, device="cuda", **options)][-len(items) :]


def test_readings_come_first_without_memory_so_that_none_is_lost(memory, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = [*collect_gpu_readings([prepare(), prepare()], device="cuda")]
    assert [item.memory for item in found] == [None, None, MEMORY, MEMORY]
    assert "interrupted before" in found[0].missing["memory"]


def test_without_nvml_there_is_memory_and_reasons_for_the_rest(memory, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = collect([prepare(), prepare()])
    assert len(found) == 2
    for item in found:
        assert (item.energy, item.utilisation, item.memory) == (None, None, MEMORY)
        assert "pip install nvidia-ml-py" in item.missing["energy"]
        assert item.missing["energy"] == item.missing["utilisation"]
        assert GpuReadings.from_dict(item.to_dict()) == item


def test_a_gpu_with_a_counter_and_no_gpm_has_energy(memory, monkeypatch):
    monkeypatch.setattr(module, "measure_idle_power", lambda gpu: IDLE)
    monkeypatch.setattr(
        module, "measure_energy", functools.partial(module.measure_energy, seconds=0.6, limit_s=0.6)
    )
    start = _core.now_ns()
    nvml = FakeNvml(**{COUNTER: lambda handle: int((_core.now_ns() - start) * 100e-6)})
    (item,) = collect([prepare()], nvml=nvml)
    assert item.energy.idle == IDLE
    assert item.energy.mean_power_w == pytest.approx(100, rel=2 * item.energy.resolution_ratio)
    assert item.missing.keys() == {"utilisation"}
    assert "not available here: nvmlGpmQueryDeviceSupport" in item.missing["utilisation"]
    assert nvml.open == 0
    assert GpuReadings.from_dict(item.to_dict()) == item


def test_a_failing_runner_loses_its_own_readings_only(memory, monkeypatch):
    def fail():
        raise ValueError("bad weights")

    monkeypatch.setattr(module, "measure_idle_power", lambda gpu: IDLE)
    nvml = FakeNvml(**{COUNTER: 1})
    (item,) = collect([prepare(fail)], nvml=nvml)
    assert "bad weights" in item.missing["energy"]
    assert item.memory == MEMORY


def test_a_gpu_out_of_memory_is_a_reason(memory):
    memory.append(RuntimeError("CUDA out of memory"))
    (item,) = collect([prepare()], nvml=FakeNvml())
    assert item.missing["memory"].startswith("CUDA out of memory; choose a smaller batch")


def test_no_device_is_an_error(monkeypatch):
    pretend_cuda(monkeypatch, 0)
    with pytest.raises(UnavailableError, match="torch sees 0 CUDA devices"):
        next(collect_gpu_readings([], device="cuda"))


@pytest.mark.parametrize("missing", [{}, {"energy": "x", "utilisation": "x", "memory": "x"}])
def test_every_none_has_a_reason_and_nothing_else_has(missing):
    with pytest.raises(InvalidArgumentError, match="each None has to have its reason"):
        GpuReadings(
            runtime="eager",
            host="cpp",
            energy=None,
            utilisation=None,
            memory=MEMORY,
            missing=missing,
        )


@pytest.mark.needs_cuda
def test_a_real_gpu_gives_what_it_has():
    pytest.importorskip("pynvml")
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    runner = _core.PythonRunner(
        lambda: x @ x, "matmul", device="cuda", grad_mode=_core.GradMode.inference
    )
    item = Candidate(runtime="eager", host="python", runner=runner, run=lambda: [])
    (found,) = collect([item])
    assert found.memory.call_bytes >= x.nbytes
    assert found.energy is None or found.energy.joules_per_inference > 0
    assert all(reason for reason in found.missing.values())


class FakeCuda:
    """A torch.cuda whose allocator holds 100 bytes; each call of `run` peaks at 700 more."""

    def __init__(self):
        self.events = []
        self.peak = 9999  # of a time before

    def run(self):
        self.events.append("run")
        self.peak = max(self.peak, 800)

    def synchronize(self, device):
        self.events.append("synchronize")

    def empty_cache(self):
        self.events.append("empty_cache")

    def reset_peak_memory_stats(self, device):
        self.events.append("reset")
        self.peak = 100

    def memory_allocated(self, device):
        return 100

    def max_memory_allocated(self, device):
        self.events.append("peak")
        return self.peak

    def max_memory_reserved(self, device):
        return 1024

    def mem_get_info(self, device):
        return 6000, 10_000


def test_the_peak_is_of_the_second_call_alone():
    cuda = FakeCuda()
    peak = measure_peak_memory(cuda.run, device="cuda", cuda=cuda)
    assert peak == PeakMemory(
        held_bytes=100, allocated_bytes=800, reserved_bytes=1024, device_bytes=4000
    )
    assert peak.call_bytes == 700
    assert cuda.events == [
        "run",
        "synchronize",
        "empty_cache",
        "reset",
        "run",
        "synchronize",
        "peak",
    ]


@pytest.mark.needs_cuda
def test_a_real_allocation_is_seen():
    held = torch.zeros(2**20, device="cuda")  # 4 MiB

    def call():
        large = torch.ones(2**24, device="cuda")  # 64 MiB
        return large.sum()

    before = torch.cuda.memory_allocated()
    peak = measure_peak_memory(call, device="cuda")
    assert peak.held_bytes == before >= held.nbytes
    assert 64 * 2**20 <= peak.call_bytes <= 66 * 2**20
    assert peak.reserved_bytes >= peak.allocated_bytes
    assert peak.device_bytes >= peak.allocated_bytes
