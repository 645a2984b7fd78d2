"""Artefacts of runtimes: when one is used again, made again, or not kept at all."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ftax.errors import UnavailableError, UnsupportedError
from ftax.runtimes.cache import cache_root, get_or_make, make_key
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate
from support.small_models import load_function, normal

pytestmark = pytest.mark.usefixtures("own_cache")


def prepare(loaded: LoadedModel, runtime: str, host: Any = "python") -> Candidate:
    return find_runtime(runtime).prepare(Workspace(loaded), host)


def only_artefact() -> Path:
    (path,) = cache_root().rglob("model.pt")
    return path


def test_second_preparation_comes_from_the_cache(mlp: LoadedModel) -> None:
    first = prepare(mlp, "torchscript")
    changed_ns = only_artefact().stat().st_mtime_ns
    second = prepare(mlp, "torchscript", "cpp")
    assert (first.preparation.from_cache, second.preparation.from_cache) == (False, True)
    assert second.preparation.made_seconds == first.preparation.made_seconds
    assert only_artefact().stat().st_mtime_ns == changed_ns


class Sparse(nn.Module):
    def __init__(self, last: float) -> None:
        super().__init__()
        self.register_buffer("kept", torch.diag(torch.tensor([1.0, 2.0, 3.0, last])).to_sparse())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(self.kept, x)


def test_sparse_weights_tell_models_apart() -> None:
    keys = [
        make_key("any", load_model(Sparse(last), inputs=normal(4, 2)), {}, ())
        for last in (4.0, 4.0, 5.0)
    ]
    assert keys[0] == keys[1] != keys[2]


def test_truncated_artefact_is_made_again(mlp: LoadedModel) -> None:
    prepare(mlp, "torchscript")
    whole = only_artefact().read_bytes()
    only_artefact().write_bytes(whole[: len(whole) // 2])
    again = prepare(mlp, "torchscript")
    assert again.preparation.from_cache is False
    assert again.checks.outputs.bitwise
    # Not the same size: torch numbers the names of classes, and a number may have grown a digit.
    assert len(only_artefact().read_bytes()) > 0.9 * len(whole)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"facts": {}, "sizes": {"gone.pt": 3}}'])
def test_artefact_without_a_sound_manifest_is_made_again(mlp: LoadedModel, text: str) -> None:
    prepare(mlp, "torchscript")
    only_artefact().with_name("manifest.json").write_text(text)
    assert prepare(mlp, "torchscript").preparation.from_cache is False


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
        assert prepared.preparation.from_cache is False
        assert prepared.checks.outputs.bitwise


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
        assert prepared.preparation.from_cache is False
        assert prepared.checks.outputs.within_tolerance


def test_same_model_built_twice_shares_its_artefact() -> None:
    for expected in (False, True):
        loaded = load_function(lambda x: x * 2 + TABLES[1])
        assert prepare(loaded, "torchscript").preparation.from_cache is expected


def test_other_weights_have_another_artefact(mlp: LoadedModel) -> None:
    prepare(mlp, "torchscript")
    mlp.module.first.weight.mul_(2)
    assert prepare(mlp, "torchscript").preparation.from_cache is False


def test_module_that_cannot_be_taped_is_not_kept() -> None:
    def in_autocast(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.T

    for _ in range(2):
        assert prepare(load_function(in_autocast), "torchscript").preparation.from_cache is False
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
