"""Runtimes: how they are found, what they compute, and what they are refused for."""

import logging
import warnings
import zipfile
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import nn

from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError, UnavailableError, UnsupportedError
from ftax.runtimes.cache import cache_root
from ftax.runtimes.catalogue import check_host, find_runtime, list_runtimes
from ftax.runtimes.compilers.torchscript import prepare_file
from ftax.runtimes.prepare import prepare_path
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import use_threads
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import GradMode, Setting
from ftax.timing.candidate import Candidate
from support.small_models import normal, same_bits


def prepare(loaded: LoadedModel, runtime: str, host: Any = "python") -> Candidate:
    return find_runtime(runtime).prepare(Workspace(loaded), host)


def only_artefact() -> Path:
    (path,) = cache_root().rglob("model.pt")
    return path


def save_script(path: Path, module: nn.Module) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch 2.10 and newer
        torch.jit.save(torch.jit.script(module), str(path))
    return path


# --- the catalogue ------------------------------------------------------------------------------


def test_unknown_runtime_names_the_nearest() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'torchscrpt'; did you mean 'torchscript'\?"):
        find_runtime("torchscrpt")


def test_runtime_like_no_other_lists_them_all() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        find_runtime("zzz")
    assert "did you mean" not in str(caught.value)
    for spec in list_runtimes():
        assert spec.name in str(caught.value)


def test_host_is_python_or_cpp() -> None:
    assert [check_host("python"), check_host("cpp")] == ["python", "cpp"]
    with pytest.raises(InvalidArgumentError, match="host is 'c'; it has to be 'python' or 'cpp'"):
        check_host("c")


def test_flat_has_no_cpp_host_and_says_why(mlp: LoadedModel) -> None:
    with pytest.raises(UnavailableError, match="flat is Python by definition"):
        prepare(mlp, "flat", "cpp")


def test_missing_package_is_an_obstacle_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = find_runtime("onnxruntime")
    monkeypatch.setattr("ftax.runtimes.spec.find_spec", lambda name: None)
    obstacle = spec.find_obstacle()
    assert obstacle is not None and "pip install onnxruntime onnx" in obstacle


def test_device_that_a_runtime_does_not_have_is_an_obstacle() -> None:
    assert "does not run on xpu" in str(find_runtime("eager").find_obstacle(device="xpu:0"))


# --- every runtime that needs no other package ---------------------------------------------------

ALL = [
    ("eager", "python"),
    ("eager", "cpp"),
    ("flat", "python"),
    ("torchscript", "python"),
    ("torchscript", "cpp"),
    ("torchscript-frozen", "python"),
    ("torchscript-frozen", "cpp"),
]


@pytest.mark.parametrize(("runtime", "host"), ALL)
def test_runtime_gives_eagers_outputs(runtime: str, host: str, nest: LoadedModel) -> None:
    prepared = prepare(nest, runtime, host)
    (x,) = nest.args
    expected = [x + x, x.neg(), x.exp(), x.abs(), x]
    outputs = prepared.run()
    assert len(outputs) == len(expected)
    assert all(map(torch.allclose, outputs, expected))
    assert (prepared.runtime, prepared.host) == (runtime, host)
    assert (prepared.runner.host, prepared.runner.needs_gil) == (host, host == "python")
    assert prepared.checks.outputs.within_tolerance
    prepared.runner.run_once()


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("runtime", ["torchscript", "torchscript-frozen"])
def test_hosts_of_torchscript_run_the_same_file(runtime: str, mlp: LoadedModel) -> None:
    workspace = Workspace(mlp)
    by_python = find_runtime(runtime).prepare(workspace, "python")
    by_cpp = find_runtime(runtime).prepare(workspace, "cpp")
    only_artefact()
    assert all(map(same_bits, by_python.run(), by_cpp.run()))


def test_tracing_says_nothing_of_a_loss_that_nobody_asked_for() -> None:
    utilities = pytest.importorskip("transformers.utils.logging")
    utilities.warning_once.cache_clear()
    logger = logging.getLogger("transformers.modeling_utils")
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        loaded = load_model("bert-base", tiny=True)
        prepare(loaded, "torchscript", "cpp")
        assert records == []
        utilities.warning_once.cache_clear()
        assert loaded.module.loss_function is not None  # what the trace reads
        assert len(records) == 1
    finally:
        logger.removeHandler(handler)


@pytest.mark.usefixtures("own_cache")
def test_freezing_changes_the_artefact(mlp: LoadedModel) -> None:
    prepare(mlp, "torchscript")
    traced = only_artefact()
    prepare(mlp, "torchscript-frozen")
    others = set(cache_root().rglob("model.pt")) - {traced}
    assert len(others) == 1


def test_prepare_runs_under_the_gradient_mode_of_the_workspace(mlp: LoadedModel) -> None:
    seen: list[bool] = []
    mlp.module.first.register_forward_hook(
        lambda *_: seen.append(torch.is_inference_mode_enabled())
    )
    for mode in get_args(GradMode):
        workspace = Workspace(mlp.run_as(Setting(grad_mode=mode)))
        find_runtime("eager").prepare(workspace, "python").runner.run_once()
        assert seen[-1] is (mode == "inference")


def test_eager_on_one_thread_sets_threads_once_a_round_and_puts_them_back(
    mlp: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    mlp.module.first.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    with use_threads(2):
        prepared = prepare(mlp, "eager-one-thread")
        seen.clear()
        prepared.runner.run_once()
        prepared.run()
        assert seen == [1, 1]
        assert torch.get_num_threads() == 2
        changes: list[int] = []
        plan = _core.RoundPlan()
        plan.rule.min_rounds = plan.rule.max_rounds = 2
        plan.samples_per_round, plan.dropped_per_round = 10, 1
        plan.warmup.iterations = 3
        with monkeypatch.context() as patch:
            patch.setattr(torch, "set_num_threads", changes.append)
            _core.measure_rounds([prepared.runner], plan)
    assert len(changes) < 10 < len(seen) - 2


def test_module_that_cannot_be_traced_is_refused_in_one_line() -> None:
    class Fickle(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.jit.is_tracing():
                raise ValueError("first line\nsecond line")
            return x + 1

    with pytest.raises(UnsupportedError) as caught:
        prepare(load_model(Fickle(), inputs=normal(3, 4)), "torchscript")
    assert str(caught.value).startswith("torch.jit.trace cannot trace Fickle: ")
    assert str(caught.value).endswith("first line second line")
    assert "\n" not in str(caught.value)


# --- TorchScript files --------------------------------------------------------------------------


def prepare_file_of(path: Path, inputs: Any, *hosts: Any) -> Any:
    return prepare_path(path, inputs, None, Setting(), runtime="eager", hosts=hosts)


def test_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = save_script(tmp_path / "model.pt", nn.Sequential(nn.ReLU()))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidArgumentError, match=r"model\.pt.*cut short or damaged"):
        prepare_file_of(path, normal(3, 4), "cpp")


@pytest.mark.parametrize("host", ["python", "cpp"])
def test_file_that_is_no_torchscript_says_what_makes_one(tmp_path: Path, host: Any) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.txt", "no pickle")
    mode = _core.GradMode.inference
    with pytest.raises(InvalidArgumentError, match=r"model\.pt.*torch\.jit\.save"):
        prepare_file(path, [normal(3, 4)], host, device="cpu", mode=mode)


def test_file_saved_in_training_mode_is_run_in_eval_mode_by_both_hosts(tmp_path: Path) -> None:
    path = save_script(tmp_path / "model.pt", nn.Sequential(nn.Dropout(0.5)).train())
    x = normal(3, 4)
    _, prepared = prepare_file_of(path, x, "python", "cpp")
    for item in prepared:
        assert same_bits(item.run()[0], x)


@pytest.mark.parametrize("host", ["python", "cpp"])
def test_inputs_that_a_file_does_not_take_are_an_error_of_ours(tmp_path: Path, host: Any) -> None:
    path = save_script(tmp_path / "model.pt", nn.Sequential(nn.ReLU()))
    x = normal(3, 4)
    with pytest.raises((InvalidArgumentError, RunnerError)):
        prepare_file_of(path, (x, x, x), host)[1][0].run()
