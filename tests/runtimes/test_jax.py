"""JAX through torchax. What needs both is skipped, with the reason, where they do not import
together; the rest runs everywhere."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn

from ftax import _core
from ftax.errors import UnavailableError, UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.compilers import jax as jax_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from support.small_models import Nest, load_function, normal


@pytest.fixture
def jax() -> Any:
    for package in ("jax", "torchax"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    try:
        return jax_runtime._import_packages()[0]
    except UnavailableError as error:
        pytest.skip(str(error))


def test_missing_packages_are_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftax.runtimes.spec.find_spec", lambda name: None)
    assert find_runtime("jax").find_obstacle() == "not installed: `pip install jax torchax`"


def test_cpp_host_is_refused_with_the_reason() -> None:
    assert "called through Python" in str(find_runtime("jax").find_obstacle(host="cpp"))


def test_copies_that_it_does_not_wait_for_are_not_measured(mlp: LoadedModel) -> None:
    workspace = Workspace(mlp)
    workspace.setting = replace(workspace.setting, transfers=True)
    with pytest.raises(UnsupportedError, match="transfers of JAX are not measured"):
        jax_runtime.prepare_jax(workspace, "python")


def test_precision_follows_torch(mlp: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert jax_runtime.choose_precision(mlp) == "highest"
    half = replace(mlp, setting=replace(mlp.setting, dtype="fp16"))
    assert jax_runtime.choose_precision(half) is None
    on_gpu = replace(mlp, setting=replace(mlp.setting, device="cuda:0"))
    images = replace(on_gpu, module=nn.Sequential(nn.Conv2d(1, 1, 1)))
    monkeypatch.setattr("ftax.runtimes.tf32.allows_products", lambda: False)
    monkeypatch.setattr("ftax.runtimes.tf32.allows_convolutions", lambda: True)
    assert jax_runtime.choose_precision(on_gpu) == "highest"
    assert jax_runtime.choose_precision(images) == "tensorfloat32"


def test_peak_is_told_only_where_it_is_new() -> None:
    before = {"bytes_in_use": 10, "peak_bytes_in_use": 50}
    assert jax_runtime._compute_peak(before, {"peak_bytes_in_use": 70}) == 60
    assert jax_runtime._compute_peak(before, {"peak_bytes_in_use": 50}) is None
    assert jax_runtime._compute_peak({}, {}) is None


def test_versions_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)  # import then raises
    monkeypatch.setattr(jax_runtime, "version", lambda name: "1.2")
    jax_runtime._import_once.cache_clear()
    try:
        with pytest.raises(UnavailableError, match=r"import torchax` failed \(.*torchax 1\.2"):
            jax_runtime._import_packages()
    finally:
        jax_runtime._import_once.cache_clear()


@pytest.mark.parametrize("name", ["mlp", "nest"])
def test_jax_gives_eagers_outputs(name: str, jax: Any, request: pytest.FixtureRequest) -> None:
    loaded: LoadedModel = request.getfixturevalue(name)
    prepared = find_runtime("jax").prepare(Workspace(loaded), "python")
    assert prepared.checks.outputs.within_tolerance
    assert len(prepared.run()) == (5 if name == "nest" else 1)
    assert isinstance(prepared.runner, _core.PythonRunner)
    prepared.runner.run_once()


def test_compiled_program_is_kept(jax: Any) -> None:
    def load() -> Workspace:
        return Workspace(load_model(Nest(), inputs=normal(3, 4)))

    first, second = (find_runtime("jax").prepare(load(), "python") for _ in range(2))
    assert (first.preparation.from_cache, second.preparation.from_cache) == (False, True)
    assert first.preparation.made_seconds == second.preparation.made_seconds
    assert jax.config.jax_compilation_cache_dir is None  # as before


def test_torchs_fast_path_is_left_on(jax: Any) -> None:
    assert torch.backends.mha.get_fastpath_enabled()


def test_model_that_jax_cannot_trace_is_refused(jax: Any) -> None:
    loaded = load_function(lambda x: x[x > 0])  # its shape depends on the data
    with pytest.raises(UnsupportedError, match=r"jax\.jit through torchax cannot compile"):
        find_runtime("jax").prepare(Workspace(loaded), "python")
