"""Utilisation through GPM: the real package's structures filled by a pretended driver."""

import pytest
import torch

from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError, UnavailableError
from ftax.instruments.utilisation import Utilisation, watch_utilisation
from ftax.machines.nvml import open_gpu
from support.fake_nvml import NoPermissionError, NotSupportedError, NVMLError, open_fake

pynvml = pytest.importorskip("pynvml")

SUPPORT = pynvml.c_nvmlGpmSupport_t(1, 1)
# SM busy, SM occupancy, DRAM bandwidth, any tensor: the driver's numbers of these metrics.
VALUES = {2: 57.0, 3: 9.25, 10: 31.5, 5: 12.0}

RUNNER = _core.DelayRunner(_core.EmptyRunner(), 100_000)


def fill(values, codes=None):
    def answer(request):
        assert request.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        for place in range(request.numMetrics):
            metric = request.metrics[place]
            metric.nvmlReturn = (codes or {}).get(metric.metricId, 0)
            metric.value = values[metric.metricId]
        return request

    return answer


def open_gpm(**answers):
    gpu = open_fake(
        **{
            "nvmlGpmQueryDeviceSupport": SUPPORT,
            "nvmlGpmSampleAlloc": lambda: pynvml.c_nvmlGpmSample_t(),
            "nvmlGpmSampleGet": None,
            "nvmlGpmSampleFree": None,
            "nvmlGpmMetricsGet": fill(VALUES),
            **answers,
        }
    )
    for name in dir(pynvml):
        if name.startswith(("NVML_GPM", "c_nvmlGpm")):
            setattr(gpu.nvml, name, getattr(pynvml, name))
    return gpu


def test_metrics_land_in_the_columns_of_the_paper():
    gpu = open_gpm()
    utilisation, _ = watch_utilisation(RUNNER, gpu=gpu, seconds=0.5)
    assert utilisation.sms_active_pct == 57.0
    assert utilisation.warp_occupancy_pct == 9.25
    assert utilisation.dram_bandwidth_pct == 31.5
    assert utilisation.tensor_active_pct == 12.0
    assert 0.4 < utilisation.seconds < 5
    assert Utilisation.from_dict(utilisation.to_dict()) == utilisation
    assert gpu.nvml.asked.count("nvmlGpmSampleGet") == 2
    assert gpu.nvml.asked.count("nvmlGpmSampleFree") == 2


def test_the_time_of_a_request_meanwhile_comes_with_the_counters():
    utilisation, latency_ns = watch_utilisation(RUNNER, gpu=open_gpm(), seconds=0.5)
    assert utilisation.sms_active_pct == 57.0
    assert 100_000 <= latency_ns < 1_000_000  # the runner waits for 100 us


def test_a_metric_that_fails_alone_is_unknown_alone():
    values = {**VALUES, 3: float("nan")}
    gpu = open_gpm(nvmlGpmMetricsGet=fill(values, codes={5: 3}))
    utilisation, _ = watch_utilisation(RUNNER, gpu=gpu, seconds=0.5)
    assert utilisation.sms_active_pct == 57.0
    assert utilisation.warp_occupancy_pct is None and utilisation.tensor_active_pct is None


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"nvmlGpmQueryDeviceSupport": pynvml.c_nvmlGpmSupport_t(1, 0)}, "has no GPM counters"),
        ({"nvmlGpmQueryDeviceSupport": NotSupportedError("old")}, "QueryDeviceSupport .*'old'"),
        ({"nvmlGpmSampleAlloc": NVMLError("no memory")}, "nvmlGpmSampleAlloc: no memory"),
        ({"nvmlGpmSampleGet": NoPermissionError("no right")}, "nvmlGpmSampleGet .*'no right'"),
        ({"nvmlGpmMetricsGet": NVMLError("broken")}, "nvmlGpmMetricsGet: broken"),
        (
            {"nvmlGpmMetricsGet": fill(VALUES, codes=dict.fromkeys(VALUES, 3))},
            "return codes 3, 3, 3, 3",
        ),
    ],
)
def test_what_is_refused_is_not_available_here_and_leaves_nothing_behind(answers, reason):
    gpu = open_gpm(**answers)
    with pytest.raises(UnavailableError, match=f"not available here: .*{reason}"):
        watch_utilisation(RUNNER, gpu=gpu, seconds=0.5)
    made = gpu.nvml.asked.count("nvmlGpmSampleAlloc")
    if "nvmlGpmSampleAlloc" not in answers:
        assert gpu.nvml.asked.count("nvmlGpmSampleFree") == made


def test_a_runner_that_fails_frees_the_samples():
    def fail():
        raise ValueError("bad weights")

    runner = _core.PythonRunner(fail, "bad", device="cpu", grad_mode=_core.GradMode.inference)
    gpu = open_gpm()
    with pytest.raises(RunnerError, match="bad weights"):
        watch_utilisation(runner, gpu=gpu, seconds=0.5)
    assert gpu.nvml.asked.count("nvmlGpmSampleFree") == 2


@pytest.mark.parametrize("seconds", [0.1, float("nan"), float("inf")])
def test_a_run_too_short_for_the_counters_is_refused(seconds):
    with pytest.raises(InvalidArgumentError, match=f"seconds is {seconds}.*at least 0.5"):
        watch_utilisation(RUNNER, gpu=open_gpm(), seconds=seconds)


@pytest.mark.needs_cuda
def test_a_busy_gpu_has_active_multiprocessors():
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    runner = _core.PythonRunner(
        lambda: x @ x, "matmul", device="cuda", grad_mode=_core.GradMode.inference
    )
    with open_gpu("cuda") as gpu:
        if torch.cuda.get_device_capability() < (9, 0):
            with pytest.raises(UnavailableError, match="not available here"):
                watch_utilisation(runner, gpu=gpu)
            return
        try:
            utilisation, _ = watch_utilisation(runner, gpu=gpu)
        except UnavailableError as error:
            pytest.skip(f"the driver refuses: {error}")
    assert 20 < utilisation.sms_active_pct <= 101
    assert 0 < utilisation.tensor_active_pct <= 101
    assert 0 < utilisation.warp_occupancy_pct <= 101
