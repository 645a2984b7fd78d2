"""JAX as a plug-in, the package of examples/jax_runtime. What needs JAX and torchax is skipped
where they are not installed."""

import os
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ftax
from ftax.errors import UnavailableError, UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.timing.plan import Plan
from support.small_models import load_function

EXAMPLE = Path(__file__).parents[3] / "examples" / "jax_runtime"
QUICK = Plan(rounds=3, warmup=5, round_ms=1.0)


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package on Python's path, with the metadata that installing it would write."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    folder = tmp_path_factory.mktemp("site")
    info = folder / "ftax_jax-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in found.items())
        for group, found in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        patch.syspath_prepend(folder)
        yield


@pytest.fixture
def package() -> Any:
    """The module of the example, where JAX is installed."""
    for name in ("jax", "torchax"):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    before = dict(os.environ)
    import ftax_jax

    yield ftax_jax
    os.environ.clear()
    os.environ.update(before)


def test_without_jax_it_is_listed_with_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)  # import then raises
    monkeypatch.delitem(sys.modules, "ftax_jax", raising=False)
    spec = find_runtime("jax")
    assert spec.description == "brought by ftax-jax 0.1"
    assert "cannot be imported (ModuleNotFoundError: import of jax" in str(spec.find_obstacle())
    assert "called from Python" in str(spec.find_obstacle(host="cpp"))


@pytest.mark.parametrize("name", ["mlp", "nest"])
def test_jax_gives_eagers_outputs(name: str, package: Any, request: pytest.FixtureRequest) -> None:
    loaded: LoadedModel = request.getfixturevalue(name)
    measurement = ftax.py_bench(loaded, runtime="jax", plan=QUICK)
    assert measurement.checks["outputs"]["within_tolerance"]
    assert measurement.checks["second_input"]["within_tolerance"]
    assert measurement.preparation["distribution"] == "ftax-jax 0.1"
    assert len(package.prepare(loaded)()) == (5 if name == "nest" else 1)


def test_it_is_a_row_of_a_receipt(package: Any, mlp: LoadedModel) -> None:
    receipt = ftax.tax(mlp, runtimes=["jax"], plan=QUICK, operators=False)
    assert [m.cell.runtime for m in receipt.others] == ["jax"]


def test_torch_is_left_as_it_was(package: Any) -> None:
    assert torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(AttributeError, match="has no overload name 'dimname'"):
        _ = torch.ops.aten.index_copy.dimname


@pytest.fixture
def tf32() -> Iterator[Any]:
    """torch's two switches, which are put back."""
    switches: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [switch.allow_tf32 for switch in switches]
    yield switches
    for switch, value in zip(switches, before, strict=True):
        switch.allow_tf32 = value


def test_precision_follows_torch(package: Any, mlp: LoadedModel, tf32: Any) -> None:
    assert package.choose_precision(mlp) == "highest"
    half = replace(mlp, setting=replace(mlp.setting, dtype="fp16"))
    assert package.choose_precision(half) is None
    on_gpu = replace(mlp, setting=replace(mlp.setting, device="cuda:0"))
    images = replace(on_gpu, module=nn.Sequential(nn.Conv2d(1, 1, 1)))
    products, convolutions = tf32
    products.allow_tf32, convolutions.allow_tf32 = False, True
    assert package.choose_precision(on_gpu) == "highest"
    assert package.choose_precision(images) == "tensorfloat32"


def test_what_jax_cannot_do_is_refused_with_the_reason(package: Any) -> None:
    loaded = load_function(lambda x: x[x > 0])  # its shape depends on the data
    with pytest.raises(UnsupportedError, match=r"jax\.jit through torchax cannot compile"):
        find_runtime("jax").prepare(Workspace(loaded), "python")
    with pytest.raises(UnavailableError, match=r"has no cuda:9 .*pip install 'jax\[cuda13\]'"):
        package.find_device("cuda:9")


@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", ["bert-base", "resnet-50"])
def test_jax_gives_eagers_outputs_on_a_gpu(name: str, package: Any) -> None:
    try:
        package.find_device("cuda:0")
    except UnavailableError as error:
        pytest.skip(str(error))
    loaded = ftax.load_model(name, tiny=True, device="cuda")
    prepared = find_runtime("jax").prepare(Workspace(loaded), "python")
    assert prepared.checks.judge_outputs().equal
    assert all(output.device.type == "cuda" for output in prepared.run())
