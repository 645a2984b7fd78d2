"""A model that torch.compile breaks, gives up or compiles again: said, and not taken apart.

The models are classes of this file, and what a test has TorchDynamo give up is of that test alone.
TorchDynamo keeps what it compiled by the code of a function, so that stays for all tests that
follow; `Doubles`, which several share, compiles whole.
"""

import pytest
import torch
from torch import nn

import ftax
from ftax.errors import UnsupportedError
from ftax.ladders.ladder import COMPILE
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.compilers import taken_apart
from ftax.runtimes.compilers.taken_apart import take_apart
from ftax.runtimes.compilers.torch_compile import find_compilation
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from support.small_models import load_function, normal

pytestmark = pytest.mark.slow


def test_what_is_not_one_graph_is_not_taken_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))

    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    receipt = ftax.tax(
        load_function(broken), ladder="compile", runtimes="none",
        plan=ftax.Plan(rounds=3, warmup=2, round_ms=1.0), progress=False,
    )  # fmt: skip
    assert [rung.place for rung in receipt.rungs] == COMPILE.list_places("cpu")[:2]
    reasons = {item.runtime: item.reason for item in receipt.unavailable}
    assert "test_compiled_breaks.py:" in reasons["compile-graph"]
    assert any("broke the model into 2 graphs" in text for text in receipt.rungs[0].warnings)


@torch.compiler.disable
def add_twice(x: torch.Tensor) -> torch.Tensor:
    return x + 1 + 1


class EndsEagerly(nn.Module):
    """One graph, and a part that is not compiled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return add_twice(x * 2)


def test_what_runs_beside_the_graph_is_not_taken_for_the_way_to_it(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    workspace = Workspace(load_model(EndsEagerly(), inputs=normal(3, 4)))
    with pytest.raises(
        UnsupportedError, match=r"it is broken \(Skip \w+ `torch\.compiler\.disable"
    ):
        take_apart(workspace)
    (warning,) = find_runtime("compile").prepare(workspace, "python").warnings
    assert "into 1 graph and code that is not compiled" in warning
    compilation = find_compilation(workspace)
    compilation.breaks = []  # the other sign of it
    with pytest.raises(UnsupportedError, match=r"a call runs aten::add\.Tensor beside its graph"):
        taken_apart.Parts(compilation)


class Doubles(nn.Module):
    """Code of its own, which nothing else has torch give up."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_what_compiled_once_and_does_not_now_is_no_compiled_row(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))

    def prepare() -> None:
        torch._dynamo.reset()
        find_runtime("compile").prepare(
            Workspace(load_model(Doubles(), inputs=normal(3, 4))), "python"
        )

    prepare()  # from now on it is cached
    refused = pytest.raises(UnsupportedError, match=r"set_stance\('force_eager'\) is in effect")
    with torch.compiler.set_stance("force_eager"), refused:
        prepare()
    refused = pytest.raises(UnsupportedError, match="force_backend")
    with torch.compiler.set_stance("default", force_backend="eager"), refused:
        prepare()
    refused = pytest.raises(UnsupportedError, match="switched off, by TORCH_COMPILE_DISABLE")
    try:
        with torch._dynamo.config.patch(disable=True), refused:
            prepare()
    finally:
        torch._dynamo.reset()  # it has given the function up


class Counts(nn.Module):
    """Compiled again for the second call, and without a break."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2 if self.calls > 1 else x * 3


def test_recompilations_are_no_breaks(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    prepared = find_runtime("compile").prepare(
        Workspace(load_model(Counts(), inputs=normal(3))), "python"
    )
    assert any("compiled the model 2 times" in text for text in prepared.warnings)
    assert not any("broke" in text for text in prepared.warnings)


def test_a_compiled_model_is_told_that_it_is_compiled_once_more(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    model = torch.compile(Doubles(), backend="aot_eager")
    workspace = Workspace(load_model(model, inputs=normal(3, 4)))
    prepared = find_runtime("compile").prepare(workspace, "python")
    assert any("the backend, mode and options" in text for text in prepared.warnings)


def test_a_step_with_autograd_and_nothing_to_follow_is_taken_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    loaded = load_model(ftax.step(lambda x: torch.tanh(x * 2), (normal(3, 4),)))
    assert loaded.has_autograd
    assert take_apart(Workspace(loaded)).generated is not None


@torch.compiler.disable
def add_in_place(x: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([x], 1.0)  # it returns nothing
    return x


def test_what_writes_and_returns_nothing_makes_no_view(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    compilation = find_compilation(Workspace(load_function(lambda x: add_in_place(x * 2))))
    compilation.breaks = []
    with pytest.raises(UnsupportedError, match=r"a call runs aten::_foreach_add_\.Scalar beside"):
        taken_apart.Parts(compilation)


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


class BreaksInALoop(nn.Module):
    """TorchDynamo gives up the function that has the loop, and compiles what it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Doubles(), Halves()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            torch._dynamo.graph_break()
        return x


def test_a_break_in_a_loop_is_no_recompilation(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    workspace = Workspace(load_model(BreaksInALoop(), inputs=normal(3, 4)))
    (warning,) = find_runtime("compile").prepare(workspace, "python").warnings
    assert "broke the model into 2 graphs and code that is not compiled" in warning


class Triples(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


def test_graphs_of_code_that_was_generated_are_found(monkeypatch, tmp_path):
    monkeypatch.setenv("FTAX_CACHE", str(tmp_path))
    triples = torch.fx.symbolic_trace(Triples())  # its globals are of no module
    assert take_apart(Workspace(load_model(triples, inputs=normal(3, 4)))).generated is not None
    torch._dynamo.reset()

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.triples = triples

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 3
            torch._dynamo.graph_break()
            return self.triples(x)

    workspace = Workspace(load_model(Both(), inputs=normal(3, 4)))
    (warning,) = find_runtime("compile").prepare(workspace, "python").warnings
    assert "into 2 graphs" in warning
