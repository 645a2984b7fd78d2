"""Runtimes: how they are found, what they are refused for, and the artefacts they keep."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import load_function, normal, same_bits
from torch import nn

from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError, UnavailableError, UnsupportedError
from ftax.models import LoadedModel, load_model
from ftax.runtimes import Prepared, Workspace, check_host, find_runtime, list_runtimes
from ftax.runtimes.cache import cache_root, get_or_make
from ftax.runtimes.equality import compare_outputs
from ftax.runtimes.files import prepare_path
from ftax.runtimes.torchscript import prepare_file


def prepare(loaded: LoadedModel, runtime: str, host: Any = "python") -> Prepared:
    return find_runtime(runtime).prepare(Workspace(loaded), host)


def only_artefact() -> Path:
    (path,) = cache_root().rglob("model.pt")
    return path


def save_script(path: Path, module: nn.Module) -> Path:
    with pytest.warns(DeprecationWarning, match="torch.jit"):
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
    monkeypatch.setattr("ftax.runtimes.catalogue.find_spec", lambda name: None)
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
    assert prepared.checks["outputs"]["within_tolerance"]
    prepared.runner.run_once()


@pytest.mark.parametrize("runtime", ["torchscript", "torchscript-frozen"])
def test_hosts_of_torchscript_run_the_same_file(runtime: str, mlp: LoadedModel) -> None:
    workspace = Workspace(mlp)
    by_python = find_runtime(runtime).prepare(workspace, "python")
    by_cpp = find_runtime(runtime).prepare(workspace, "cpp")
    only_artefact()
    assert all(map(same_bits, by_python.run(), by_cpp.run()))


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
    for no_grad in (False, True):
        find_runtime("eager").prepare(Workspace(mlp, no_grad=no_grad), "python").runner.run_once()
        assert seen[-1] is not no_grad


def test_module_that_cannot_be_traced_is_refused_in_one_line() -> None:
    class Fickle(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.jit.is_tracing():
                raise ValueError("first line\nsecond line")
            return x + 1

    with pytest.raises(UnsupportedError) as caught:
        prepare(load_model(Fickle(), inputs=normal(3, 4)), "torchscript")
    assert str(caught.value).startswith("torch.jit.trace cannot trace Fickle: ")
    assert "first line" in str(caught.value)
    assert "second line" not in str(caught.value)


# --- artefacts ----------------------------------------------------------------------------------


def test_second_preparation_comes_from_the_cache(mlp: LoadedModel) -> None:
    first = prepare(mlp, "torchscript")
    changed_ns = only_artefact().stat().st_mtime_ns
    second = prepare(mlp, "torchscript", "cpp")
    assert (first.facts["from_cache"], second.facts["from_cache"]) == (False, True)
    assert second.facts["seconds"] == first.facts["seconds"]
    assert only_artefact().stat().st_mtime_ns == changed_ns


def test_truncated_artefact_is_made_again(mlp: LoadedModel) -> None:
    prepare(mlp, "torchscript")
    whole = only_artefact().read_bytes()
    only_artefact().write_bytes(whole[: len(whole) // 2])
    again = prepare(mlp, "torchscript")
    assert again.facts["from_cache"] is False
    assert again.checks["outputs"]["bitwise"]
    assert len(only_artefact().read_bytes()) == len(whole)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"facts": {}, "sizes": {"gone.pt": 3}}'])
def test_artefact_without_a_sound_manifest_is_made_again(mlp: LoadedModel, text: str) -> None:
    prepare(mlp, "torchscript")
    only_artefact().with_name("manifest.json").write_text(text)
    assert prepare(mlp, "torchscript").facts["from_cache"] is False


def test_artefact_of_a_faster_process_is_kept() -> None:
    def write(folder: Path, text: str) -> dict[str, object]:
        (folder / "text").write_text(text)
        return {}

    def lose_the_race(folder: Path) -> dict[str, object]:
        get_or_make("key", "kind", lambda other: write(other, "theirs"))
        return write(folder, "ours")

    artefact = get_or_make("key", "kind", lose_the_race)
    assert (artefact.folder / "text").read_text() == "theirs"
    assert [path.name for path in (cache_root() / "kind").iterdir()] == ["key"]


def test_failed_preparation_leaves_nothing_behind() -> None:
    loaded = load_function(lambda x: x + 1 if not torch.jit.is_tracing() else 1 / 0)
    with pytest.raises(UnsupportedError, match="division by zero"):
        prepare(loaded, "torchscript")
    assert [path for path in cache_root().rglob("*") if path.is_file()] == []


TABLES = [torch.zeros(4), torch.ones(4)]


def exp_then_neg(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.exp(), x.neg()


def exp_and_neg_swapped(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    exp, neg = x.exp(), x.neg()
    return neg, exp


# Pairs of the same class, weights and operators, which only their code tells apart.
TWINS = {
    "other operators": (lambda x: x.exp(), lambda x: x.neg()),
    "another number": (lambda x: x * 2, lambda x: x * 3),
    "another argument": (lambda x: x.sum(0), lambda x: x.sum(1)),
    "other filled memory": (lambda x: x + torch.tensor([1.0]), lambda x: x + torch.tensor([2.0])),
    "another captured tensor": (lambda x: x + TABLES[0], lambda x: x + TABLES[1]),
    "another order of outputs": (exp_then_neg, exp_and_neg_swapped),
}


@pytest.mark.parametrize("name", TWINS)
def test_twins_with_other_code_have_other_artefacts(name: str) -> None:
    for function in TWINS[name]:
        prepared = prepare(load_function(function), "torchscript")
        assert prepared.facts["from_cache"] is False
        assert prepared.checks["outputs"]["bitwise"]


def test_layers_called_in_another_order_have_another_artefact() -> None:
    class Two(nn.Module):
        def __init__(self, order: str) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            for seed, layer in enumerate((self.a, self.b)):
                layer.load_state_dict({"weight": normal(4, 4, seed=seed), "bias": torch.ones(4)})
            self.order = order

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for name in self.order:
                x = getattr(self, name)(x)
            return x

    for order in ("ab", "ba"):
        prepared = prepare(load_model(Two(order), inputs=normal(3, 4)), "torchscript")
        assert prepared.facts["from_cache"] is False
        assert prepared.checks["outputs"]["within_tolerance"]


def test_same_model_built_twice_shares_its_artefact() -> None:
    for expected in (False, True):
        loaded = load_function(lambda x: x * 2 + TABLES[1])
        assert prepare(loaded, "torchscript").facts["from_cache"] is expected


def test_other_weights_have_another_artefact(mlp: LoadedModel) -> None:
    prepare(mlp, "torchscript")
    mlp.module.first.weight.mul_(2)
    assert prepare(mlp, "torchscript").facts["from_cache"] is False


def test_module_that_cannot_be_taped_is_not_kept() -> None:
    def in_autocast(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.T

    for _ in range(2):
        assert prepare(load_function(in_autocast), "torchscript").facts["from_cache"] is False
    assert list(cache_root().rglob("model.pt")) == []


def test_cache_that_cannot_be_written_to_names_the_remedy(
    mlp: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path / "file"))
    with pytest.raises(UnavailableError, match="set FTAX_CACHE to another folder"):
        prepare(mlp, "torchscript")


def test_cache_is_found_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTAX_CACHE", "/chosen")
    assert cache_root() == Path("/chosen")
    monkeypatch.delenv("FTAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/base")
    assert cache_root() == Path("/base/ftax")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path.home() / ".cache" / "ftax"


# --- TorchScript files --------------------------------------------------------------------------


def test_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = save_script(tmp_path / "model.pt", nn.Sequential(nn.ReLU()))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidArgumentError, match=r"model\.pt.*cut short or damaged"):
        prepare_path(path, normal(3, 4), "eager", ["cpp"], False, {})


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
    _, prepared = prepare_path(path, x, "eager", ["python", "cpp"], False, {})
    for item in prepared:
        assert same_bits(item.run()[0], x)


@pytest.mark.parametrize("host", ["python", "cpp"])
def test_inputs_that_a_file_does_not_take_are_an_error_of_ours(tmp_path: Path, host: Any) -> None:
    path = save_script(tmp_path / "model.pt", nn.Sequential(nn.ReLU()))
    x = normal(3, 4)
    with pytest.raises((InvalidArgumentError, RunnerError)):
        prepare_path(path, (x, x, x), "eager", [host], False, {})[1][0].run()


# --- equality -----------------------------------------------------------------------------------


def test_equal_bytes_are_bitwise_and_minus_zero_is_not_zero() -> None:
    zeros = torch.zeros(2)
    assert compare_outputs([zeros], [zeros.clone()]).bitwise
    signed = compare_outputs([zeros], [-zeros])
    assert not signed.bitwise
    assert signed.within_tolerance and signed.difference == 0.0


def test_difference_is_relative_to_the_norm_of_the_reference() -> None:
    # |(0, 0.5)| / |(3, 4)| = 0.5 / 5
    result = compare_outputs([torch.tensor([3.0, 4.0])], [torch.tensor([3.0, 4.5])])
    assert result.difference == pytest.approx(0.1)
    assert not result.within_tolerance
    assert result.problem == "outputs differ by 1.0e-01 (limit 1e-04)"


def test_nan_must_be_in_the_same_places() -> None:
    reference, other = torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 0.0])
    same = compare_outputs([reference], [reference.clone()])
    assert same.bitwise and same.has_nan
    assert not compare_outputs([reference], [other]).within_tolerance


def test_integers_are_equal_or_not() -> None:
    assert not compare_outputs(
        [torch.tensor([10**6])], [torch.tensor([10**6 + 1])]
    ).within_tolerance


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        ([], "0 outputs instead of 1"),
        ([torch.ones(3)], "output 0 has shape (3,) instead of (2,)"),
        ([torch.ones(2).double()], "output 0 has dtype torch.float64 instead of torch.float32"),
    ],
)
def test_other_structure_is_named(outputs: list[torch.Tensor], problem: str) -> None:
    result = compare_outputs([torch.ones(2)], outputs)
    assert result.problem == problem
    assert result.to_dict()["difference"] is None
