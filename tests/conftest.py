"""What all tests share: what a test may need, one cache, and models small enough to read.

FTAX_REQUIRE_GPU=1 makes a test that would be skipped for want of a GPU fail, so that a run meant
for a GPU cannot pass by not using it.
"""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

import ftax
import ftax.workers.process
from ftax.captures import checks, ledger, program, recordings
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from support.forks import can_fork, forked_workers
from support.small_models import Nest, normal

pytest_plugins = ("ftax_pytest", "pytester")

# Or inductor compiles and loads a library for each kind of vector that the CPU might have, again in
# each cache.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")


def _name_core(cpu: int) -> str:
    """Alike for processors that are threads of one core."""
    return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()


def _take_a_gpu(worker: str, count: int) -> None:
    """Have one of so many GPUs, and its share of the cores, in a process of pytest-xdist."""
    index, cpus = int(worker.removeprefix("gw")) % count, os.sched_getaffinity(0)
    os.environ["CUDA_VISIBLE_DEVICES"] = str(index)  # before CUDA is first asked for
    share = len(cpus) // count
    os.sched_setaffinity(0, sorted(cpus, key=_name_core)[index * share : (index + 1) * share])


if "FTAX_TEST_GPUS" in os.environ and "PYTEST_XDIST_WORKER" in os.environ:
    _take_a_gpu(os.environ["PYTEST_XDIST_WORKER"], int(os.environ["FTAX_TEST_GPUS"]))


def _find_cuda_obstacle() -> str | None:
    return None if torch.cuda.is_available() else "torch finds no CUDA device"


def _find_ort_obstacle() -> str | None:
    return None if find_spec("onnxruntime") else "onnxruntime is not installed"


def _find_ort_cuda_obstacle() -> str | None:
    obstacle = _find_cuda_obstacle() or _find_ort_obstacle()
    if obstacle is None:
        import onnxruntime

        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            return "this onnxruntime has no CUDA provider"
    return obstacle


_OBSTACLES: dict[str, Callable[[], str | None]] = {
    "needs_cuda": _find_cuda_obstacle,
    "needs_ort": _find_ort_obstacle,
    "needs_ort_cuda": _find_ort_cuda_obstacle,
}


def pytest_configure() -> None:
    # A shell that starts the tests in the background has Ctrl-C ignored, and some tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Neighbours that come and go may spoil a try, and not three; what is wrong is so in each.
    for item in items:
        if item.get_closest_marker("timing") is not None:
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=10))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, find_obstacle in _OBSTACLES.items():
        if item.get_closest_marker(marker) is None:
            continue
        obstacle = find_obstacle()
        if obstacle is None:
            continue
        if os.environ.get("FTAX_REQUIRE_GPU") == "1" and marker != "needs_ort":
            pytest.fail(f"FTAX_REQUIRE_GPU=1, but {obstacle}", pytrace=False)
        pytest.skip(obstacle)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a script: threads of pytest's plug-ins do not count."""
    for place in (recordings, checks):
        monkeypatch.setattr(place, "is_only_thread", lambda: True)


@pytest.fixture
def record_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture records each new kind of call, and replays it, whether that pays or not: for tests
    of what is recorded and replayed. When it does is in test_capture_service.py."""
    monkeypatch.setattr(ledger.Budget, "pays", lambda self, kind: True)
    monkeypatch.setattr(program.Schedule, "is_no_faster", False)


@pytest.fixture
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(autouse=True, scope="session")
def _quick_workers() -> Iterator[None]:
    with forked_workers(ftax.workers.process) if can_fork() else nullcontext():
        yield


@pytest.fixture(autouse=True, scope="module")
def _little_garbage() -> Iterator[None]:
    """Each measurement looks through all objects for garbage, which takes longer than the tiny
    models of most tests: what was there before stays frozen, and nobody counts it."""
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)
        patch.setattr(gc, "get_freeze_count", lambda: 0)
        yield


@pytest.fixture(scope="session")
def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared-cache")


@pytest.fixture(autouse=True)
def _shared_cache(_shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test had exported or compiled the next one finds again."""
    monkeypatch.setenv("FTAX_CACHE", str(_shared_folder))


@pytest.fixture
def own_cache(_shared_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that ask what is made: an empty one."""
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path / "own-cache"))


@pytest.fixture
def mlp() -> LoadedModel:
    """Two linear layers, `first` and `second`, with a relu between them; input (2, 4)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Sequential()
        layers.add_module("first", nn.Linear(4, 8))
        layers.add_module("between", nn.ReLU())
        layers.add_module("second", nn.Linear(8, 3))
    return ftax.load_model(layers, inputs=normal(2, 4))


@pytest.fixture
def nest() -> LoadedModel:
    """A model that returns five tensors in nested containers; input (3, 4)."""
    return ftax.load_model(Nest(), inputs=normal(3, 4))


@pytest.fixture(scope="session", params=["bert-base", "gpt2", "resnet-50"])
def tiny_zoo(request: pytest.FixtureRequest) -> Workspace:
    """The shared workspace of a zoo model: its tape and flat program are made once for all
    tests."""
    return Workspace(ftax.load_model(request.param, tiny=True))
